// SPDX-License-Identifier: Apache-2.0
// Training data: files -> documents -> sequences, and the order in which a run reads them.
//
// A file holds plain bytes, gzip (unpacked into memory), or little-endian token ids of 16 or 32
// bits, with a NumPy header or without; plain files are mapped. It is one document, or several that
// each end with the token `eos`. A file of n tokens is cut into sequences of S inputs: sequence i
// starts at token i * S and may look ahead past its own end, but never past its document's, where
// every token is -1. So each token but a document's first is a target exactly once an epoch.
// Several documents in a sequence are segments of it; positions start again with each.
//
// A held-out tail is a document of its own and is invisible to training, look-ahead included. It
// begins one token early, so that its first token is a target too: the measure covers exactly the
// tail.
//
// The order of sequences is a keyed permutation: a pure function of (seed, epoch, index), so a
// position in the data is one number, and resuming or re-sharding continues the same order.
#ifndef MOEC_DATA_H
#define MOEC_DATA_H

#include "runtime/exec/exec.h"

typedef struct DataFile {
    const char *path;
    const uint8_t *at;           // unpacked
    size_t bytes;
    bool mapped;
    Held held;
    Hash hash;                   // of the unpacked bytes
    const uint8_t *ids;          // tokens, past a header
    int64_t n;
} DataFile;

typedef struct DataPart {
    const uint8_t *at;           // first token
    int64_t n;                   // tokens
    int64_t first;               // number of its first sequence in the set
} DataPart;

typedef struct DataSet {
    DataPart *parts;             // files, or what of them is in the set
    int32_t n_parts, item;       // item: bytes per token
    int64_t eos;                 // -1: none
    int64_t sequence;            // S
    int64_t n_sequences, n_targets;
} DataSet;

typedef struct DataOptions {
    const char *const *files; int n_files;
    const char *const *eval_files; int n_eval_files;
    int item;                    // 1: bytes, 2: uint16, 4: uint32
    int64_t eos;                 // ends a document; -1: none
    int64_t held_out;            // tokens at the end of the last file; not with eval_files
    int64_t sequence, vocab;
} DataOptions;

typedef struct Data {
    Arena *arena;
    DataFile *files; int n_files; // then the evaluation files
    int n_train_files;
    DataSet train, held_out;     // held_out.n_sequences is 0 without one
} Data;

// Reads every file once: ids past the vocabulary, odd sizes and damaged gzip are refused here.
Status data_open(const DataOptions *options, Data **out);
void data_close(Data *data);                                   // NULL is fine

// Position `index` of the permutation of [0, n) that (seed, epoch) selects.
int64_t data_order(uint64_t seed, int64_t epoch, int64_t n, int64_t index);
// Sequence that the run reads as its `sample`-th, over epochs.
int64_t data_sample(const DataSet *set, uint64_t seed, int64_t sample);
// out[t], t < S: token at t + ahead of the sequence, -1 past its document's end. Sequence -1: none.
void data_tokens(const DataSet *set, int64_t sequence, int64_t ahead, int32_t *out);
// Position in the document and number of the document, from `segment` on, for each token of a
// sequence (either may be NULL); a document that began before the sequence starts anew with it.
// Returns the next number.
int32_t data_places(const DataSet *set, int64_t sequence, int32_t segment, int32_t *positions,
                    int32_t *segments);
int64_t data_targets(const DataSet *set, int64_t sequence);    // labels 1 ahead that are not -1

// Some sequences of a set laid out as a program's microbatches: what an ExecFill needs. `ranks` divide
// the tokens: the i-th sequence of microbatch m on rank d of them is number (m * ranks + d) *
// per_microbatch + i of all, so that a microbatch of all ranks is what one rank with larger ones has.
typedef struct DataBatch {
    const DataSet *set;
    const int64_t *sequences;    // this rank's, in order; -1: an empty one
    int64_t per_microbatch;      // of this rank
    int64_t first_index;         // global number of the first token of all ranks
    int64_t ranks, rank;         // 0 ranks: one
} DataBatch;
// The number among all ranks' of this rank's k-th sequence.
int64_t data_batch_number(const DataBatch *batch, int64_t k);
int64_t data_batch_targets(const DataBatch *batch, int64_t n_sequences);
// An ExecFill.
Status data_fill(void *batch, Exec *exec, const PlanProgram *program, int microbatch);

/* npy.c: the NumPy array file, versions 1 to 3 */
bool npy_recognise(const uint8_t *bytes, size_t n);
// Where the data of an array of unsigned or signed little-endian integers of `item` bytes begin.
Status npy_parse(const char *path, const uint8_t *bytes, size_t n, int item, size_t *header);

/* gzip.c */
bool gzip_recognise(const uint8_t *bytes, size_t n);
// All members of a gzip file. *out is malloc'ed. Messages give `path` and the compressed offset.
Status gzip_unpack(const char *path, const uint8_t *bytes, size_t n, uint8_t **out, size_t *n_out);

#endif
