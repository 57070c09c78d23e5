// SPDX-License-Identifier: Apache-2.0
// Checkpoints: RUN/checkpoints/step-N/ holds
//
//   weights.safetensors   parameters and states
//   moment1.safetensors   AdamW's first moments; moment2.safetensors: the second
//   manifest.json         written last: what the files hold, their sizes and hashes, its own hash
//
// and RUN/checkpoints/latest names the newest. Tensors are keyed by address, and one with experts
// is an entry per expert, "ADDRESS.expert.E": no layout shows. A checkpoint is written in a folder
// of another name, synced, and renamed, so a folder named step-N is whole or was damaged later;
// reading checks everything, and falls back to the one before.
//
// Of many ranks each writes what it owns into its place in the files, and reads what it has; nothing is
// gathered. Rank 0 does the rest: headers before, the manifest once everybody has synced.
#ifndef MOEC_CHECKPOINT_H
#define MOEC_CHECKPOINT_H

#include <jansson.h>

#include "runtime/comm/comm.h"

/* safetensors.c: u64 header length, JSON header, packed little-endian data --------------------- */

typedef struct Tensor {
    const char *name;
    int n_dims;
    int64_t dims[PLAN_MAX_DIMS];
    const float *at;             // F32, the only type written; of files that are read
    int64_t bytes, offset;       // offset: in the data of a file to write
} Tensor;

typedef struct TensorFile {
    uint8_t *map;                // the whole file
    size_t bytes;
    Tensor *tensors; int n_tensors;
    Held held;
} TensorFile;

// A part of a tensor, in memory.
typedef struct TensorPiece {
    int tensor;
    int64_t at, bytes;
    float *memory;
} TensorPiece;

// A file is made, then filled by whoever has what belongs in it, then hashed. The tensors' order is kept.
// Each syncs. comm (NULL: one rank) hears that it goes on.
Status tensors_create(const char *path, const Tensor *tensors, int n);
Status tensors_fill(const char *path, const Tensor *tensors, const TensorPiece *pieces, int n, Comm *comm);
Status tensors_hash(const char *path, Comm *comm, int64_t *bytes, Hash *hash);
// Maps the file and checks its structure: header, types, shapes, data covered exactly once.
Status tensors_open(const char *path, Arena *arena, TensorFile *out);
void tensors_close(TensorFile *file);                          // zeroed is fine
const Tensor *tensors_find(const TensorFile *file, const char *name); // NULL: none

/* checkpoint.c --------------------------------------------------------------------------------- */

typedef struct TrainState {
    int64_t step;                // steps done
    int64_t tokens;              // targets trained on
    int64_t sample;              // sequences read: the position in the data
    double seconds;              // trained for
    double lr;                   // of the last step
    int64_t skipped;             // steps skipped
} TrainState;

// Where a rank's parameters are; moments are NULL where only weights matter. All ranks of `comm` (NULL:
// one rank) save and load together.
typedef struct TrainMemory {
    float *weights, *moment1, *moment2, *master; // regions
    Comm *comm;
} TrainMemory;

typedef struct CheckpointInfo {
    TrainState state;
    Hash plan;
    char *name;                  // "step-12"
    json_t *manifest;            // the caller's to json_decref
} CheckpointInfo;

// Which checkpoints up to this step stay: the newest, and those of a multiple of `every` (0: none).
typedef struct CheckpointKeep { int64_t newest, every; } CheckpointKeep;
// `extra` (borrowed) goes into the manifest.
Status checkpoint_save(const char *run, const Plan *plan, const TrainMemory *memory,
                       const TrainState *state, const json_t *extra, CheckpointKeep keep);
// The newest good checkpoint; damaged ones are passed over with a warning in the log. With moments
// the file's tensors must be the plan's exactly; without, the plan's must be among them.
Status checkpoint_load(const char *run, Arena *arena, const Plan *plan, const TrainMemory *memory,
                       CheckpointInfo *out);
// One checkpoint, by its folder; nothing in memory is changed unless all of it is good.
Status checkpoint_read(const char *folder, Arena *arena, const Plan *plan,
                       const TrainMemory *memory, CheckpointInfo *out);
Status checkpoint_any(const char *run, bool *any);

/* pieces.c: the tensors of a checkpoint's files, and the parts of them that are a rank's -------- */

enum { CHECKPOINT_FILES = 3 };   // weights, moment1, moment2

typedef struct Pieces Pieces;
Status pieces_open(const Plan *plan, Comm *comm, Arena *arena, Pieces **out);
const Tensor *pieces_tensors(const Pieces *pieces, int file, int *n);
// What this rank reads, or writes.
const TensorPiece *pieces_list(const Pieces *pieces, const TrainMemory *memory, int file, bool writing,
                               Arena *arena, int *n);

/* json.c: JSON files whose damage shows -------------------------------------------------------- */

// From now on documents are blocks of memory.c, and making one cannot fail for want of memory. Called
// before the first is made.
void json_from_memory(void);
// Its text; false where a string is not UTF-8 or there is no document.
bool json_print(const json_t *document, size_t flags, Text *out);
// Adds a "check" field (a hash of the rest) and writes the file atomically. Borrows `document`.
Status json_save(const char *path, const json_t *document);
// Reads and verifies; what = "manifest", for messages. *out is the caller's to json_decref.
Status json_load_checked(const char *path, const char *what, json_t **out);

#endif
