// SPDX-License-Identifier: Apache-2.0
// Opens files, cuts them into sequences, and writes those into a program's inputs.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/data.h"

/* Files ---------------------------------------------------------------------------------------- */

static Status map_file(const char *path, uint8_t **at, size_t *bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is not waited for
    if (fd < 0)
        return status_fail(status_errno(errno) == ERR_MEMORY ? ERR_MEMORY : ERR_INPUT,
                           "cannot open the data file %s: %s", path, strerror(errno));
    struct stat info;
    Status status = OK;
    if (fstat(fd, &info) < 0)
        status = status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = status_fail(ERR_INPUT, "%s is not a regular file, which data must be", path);
    else if (!info.st_size) status = status_fail(ERR_INPUT, "the data file %s is empty", path);
    if (status == OK) {
        *bytes = (size_t)info.st_size;
        *at = mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (*at == MAP_FAILED)
            status = status_fail(status_errno(errno), "cannot map %s: %s", path, strerror(errno));
    }
    close(fd);
    return status;
}

static void give_back(void *user) {
    DataFile *file = user;
    memory_drop(&file->held);
    void *at = (void *)(uintptr_t)file->at;
    if (at && file->mapped) munmap(at, file->bytes);
    else free(at);
    file->at = NULL;
}

static uint32_t token_at(const uint8_t *at, int item, int64_t i) {
    if (item == 1) return at[i];
    at += i * item;
    uint32_t low = at[0] | (uint32_t)at[1] << 8;
    return item == 2 ? low : low | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static Status check_ids(const DataFile *file, int item, int64_t vocab) {
    if (vocab >= (int64_t)1 << (8 * item)) return OK;
    for (int64_t i = 0; i < file->n; i++) {
        uint32_t id = token_at(file->ids, item, i);
        if (id < vocab) continue;
        return status_fail(
            ERR_INPUT,
            "%s: token %u at offset %lld, but the model's vocabulary is %lld\n  hint: %s",
            file->path, id, (long long)(file->ids - file->at + i * item), (long long)vocab,
            item == 1 ? "a model of bytes needs vocab = 256"
                      : "was the file made with another tokenizer?");
    }
    return OK;
}

static Status open_file(DataFile *file, const char *path, const DataOptions *options) {
    file->path = path;
    uint8_t *at;
    size_t bytes = 0;
    TRY(map_file(path, &at, &bytes));
    file->at = at;
    file->bytes = bytes;
    file->mapped = true;
    memory_hold(&file->held, give_back, file);
    // A token file may begin like gzip by chance; only bytes are ever unpacked.
    if (options->item == 1 && gzip_recognise(at, bytes)) {
        uint8_t *unpacked;
        size_t n;
        Status status = gzip_unpack(path, at, bytes, &unpacked, &n);
        give_back(file);
        TRY(status);
        file->at = unpacked;
        file->bytes = n;
        file->mapped = false;
        memory_hold(&file->held, give_back, file);
        if (!n) return status_fail(ERR_INPUT, "the data file %s is empty once unpacked", path);
    }
    size_t header = 0;
    if (npy_recognise(file->at, file->bytes))
        TRY(npy_parse(path, file->at, file->bytes, options->item, &header));
    if ((file->bytes - header) % (size_t)options->item)
        return status_fail(
            ERR_INPUT,
            "%s has %zu bytes, which is not a whole number of %d-byte tokens\n  hint: "
            "--tokens says what a file holds",
            path, file->bytes, options->item);
    file->ids = file->at + header;
    file->n = (int64_t)(file->bytes - header) / options->item;
    TRY(check_ids(file, options->item, options->vocab));
    file->hash = hash_bytes(file->at, file->bytes);
    return OK;
}

void data_close(Data *data) {
    if (!data) return;
    for (int i = 0; i < data->n_files; i++) give_back(&data->files[i]);
    arena_destroy(data->arena);
}

/* Parts ---------------------------------------------------------------------------------------- */

static void add_part(DataSet *set, const uint8_t *at, int64_t n) {
    if (n < 2) return; // no target
    set->parts[set->n_parts++] = (DataPart) { at, n, set->n_sequences };
    set->n_sequences += div_up(n - 1, set->sequence);
    set->n_targets += n - 1;
    for (int64_t i = 0; set->eos >= 0 && i < n - 1; i++)
        set->n_targets -= token_at(at, set->item, i) == set->eos; // nothing follows an end
}

static Status cut_held_out(Data *data, const DataOptions *options) {
    const DataFile *last = &data->files[data->n_train_files - 1];
    int64_t n = last->n, kept = n - options->held_out;
    if (kept < 1)
        return status_fail(
            ERR_ARGUMENT,
            "--held-out is %lld, but the last file, %s, has %lld tokens\n  hint: hold out "
            "fewer, or give a file of its own with --eval-data",
            (long long)options->held_out, last->path, (long long)n);
    add_part(&data->held_out, last->ids + (kept - 1) * options->item, options->held_out + 1);
    add_part(&data->train, last->ids, kept);
    return OK;
}

static Status open_all(Data *data, const DataOptions *options) {
    for (int i = 0; i < options->n_files + options->n_eval_files; i++) {
        const char *path =
            i < options->n_files ? options->files[i] : options->eval_files[i - options->n_files];
        data->n_files = i + 1; // before opening, so that data_close sees it
        TRY(open_file(&data->files[i], arena_strdup(data->arena, path), options));
    }
    for (int i = 0; i < data->n_train_files; i++) {
        const DataFile *file = &data->files[i];
        if (i == data->n_train_files - 1 && options->held_out) TRY(cut_held_out(data, options));
        else add_part(&data->train, file->ids, file->n);
    }
    for (int i = data->n_train_files; i < data->n_files; i++)
        add_part(&data->held_out, data->files[i].ids, data->files[i].n);
    if (data->train.n_targets < 1)
        return status_fail(ERR_INPUT, "%s leaves no training data: a document needs two tokens",
                           data->n_train_files > 1 ? "these files" : data->files[0].path);
    return OK;
}

Status data_open(const DataOptions *options, Data **out) {
    *out = NULL;
    if (options->n_files < 1)
        return status_fail(ERR_ARGUMENT, "no training data\n  hint: give --data FILE...");
    if (options->held_out && options->n_eval_files)
        return status_fail(ERR_ARGUMENT, "--held-out and --eval-data exclude each other");
    if (options->eos >= options->vocab)
        return status_fail(ERR_ARGUMENT, "--eos is %lld, but the model's vocabulary is %lld",
                           (long long)options->eos, (long long)options->vocab);
    Arena *arena = arena_create();
    Data *data = ARENA_NEW(arena, Data);
    data->arena = arena;
    data->n_train_files = options->n_files;
    int n = options->n_files + options->n_eval_files;
    data->files = ARENA_ARRAY(arena, DataFile, n);
    for (DataSet *set = &data->train;; set = &data->held_out) {
        set->parts = ARENA_ARRAY(arena, DataPart, n);
        set->item = options->item;
        set->eos = options->eos;
        set->sequence = options->sequence;
        if (set == &data->held_out) break;
    }
    Status status = open_all(data, options);
    if (status != OK) {
        data_close(data);
        return status;
    }
    *out = data;
    return OK;
}

/* Order ---------------------------------------------------------------------------------------- */

// A balanced Feistel network over the next even number of bits, walked until it falls into [0, n):
// less than four rounds of it on average.
int64_t data_order(uint64_t seed, int64_t epoch, int64_t n, int64_t index) {
    if (n < 2) return 0;
    int half = 1;
    while ((int64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1,
             key = hash_mix(seed, (uint64_t)epoch, 0x6f72646572); // "order"
    uint64_t x = (uint64_t)index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (hash_mix(key, round, right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t data_sample(const DataSet *set, uint64_t seed, int64_t sample) {
    int64_t n = set->n_sequences;
    return data_order(seed, sample / n, n, sample % n);
}

/* Sequences ------------------------------------------------------------------------------------ */

static const DataPart *part_of(const DataSet *set, int64_t sequence) {
    int low = 0, high = set->n_parts - 1; // the last part whose first sequence is not past it
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (set->parts[middle].first <= sequence) low = middle;
        else high = middle - 1;
    }
    return &set->parts[low];
}

// Whether token i of the part is the last of a document that another may follow.
static bool ends(const DataSet *set, const DataPart *part, int64_t i) {
    return set->eos >= 0 && token_at(part->at, set->item, i) == set->eos;
}

void data_tokens(const DataSet *set, int64_t sequence, int64_t ahead, int32_t *out) {
    int64_t size = set->sequence, n = 0;
    if (sequence >= 0) {
        const DataPart *part = part_of(set, sequence);
        int64_t first = (sequence - part->first) * size + ahead;
        n = min_i64(size, max_i64(part->n - first, 0));
        for (int64_t t = 0; t < n; t++)
            out[t] = (int32_t)token_at(part->at, set->item, first + t);
        // What an end of document at position e hides: tokens past e, from positions up to e.
        for (int64_t e = first - ahead; set->eos >= 0 && n && e < first + n - 1; e++)
            if (ends(set, part, e))
                for (int64_t t = max_i64(e + 1 - first, 0); t <= min_i64(e - first + ahead, n - 1);
                     t++)
                    out[t] = -1;
    }
    for (int64_t t = n; t < size; t++) out[t] = -1;
}

int64_t data_targets(const DataSet *set, int64_t sequence) {
    if (sequence < 0) return 0;
    const DataPart *part = part_of(set, sequence);
    int64_t first = (sequence - part->first) * set->sequence,
            n = min_i64(set->sequence, part->n - 1 - first), targets = n;
    for (int64_t t = 0; t < n; t++) targets -= ends(set, part, first + t);
    return targets;
}

int32_t data_places(const DataSet *set, int64_t sequence, int32_t segment, int32_t *positions,
                    int32_t *segments) {
    const DataPart *part = sequence < 0 ? NULL : part_of(set, sequence);
    int64_t first = part ? (sequence - part->first) * set->sequence : 0,
            n = part && set->eos >= 0 ? min_i64(set->sequence, part->n - first) : 0;
    int32_t position = 0;
    for (int64_t t = 0; t < set->sequence; t++) {
        if (positions) positions[t] = position;
        if (segments) segments[t] = segment;
        position++;
        if (t + 1 < n && ends(set, part, first + t)) position = 0, segment++;
    }
    return segment + 1;
}

int64_t data_batch_number(const DataBatch *batch, int64_t k) {
    int64_t b = batch->per_microbatch;
    return (k / b * max_i64(batch->ranks, 1) + batch->rank) * b + k % b;
}

int64_t data_batch_targets(const DataBatch *batch, int64_t n_sequences) {
    int64_t n = 0;
    for (int64_t i = 0; i < n_sequences; i++) n += data_targets(batch->set, batch->sequences[i]);
    return n;
}

static void fill_input(const DataBatch *batch, int microbatch, const PlanInput *input, void *at) {
    const DataSet *set = batch->set;
    int64_t size = set->sequence, n = batch->per_microbatch, first = microbatch * n;
    int32_t *ids = at, segment = 0;
    float *counts = at;
    for (int64_t s = 0; s < n; s++) {
        int64_t sequence = batch->sequences[first + s];
        switch (input->kind) {
        case INPUT_tokens:
        case INPUT_labels: data_tokens(set, sequence, input->k, ids + s * size); break;
        case INPUT_positions: data_places(set, sequence, 0, ids + s * size, NULL); break;
        case INPUT_segments:
            segment = data_places(set, sequence, segment, NULL, ids + s * size);
            break;
        case INPUT_index: // modulo 2^32
            for (int64_t t = 0; t < size; t++)
                ids[s * size + t] =
                    (int32_t)(uint32_t)(batch->first_index +
                                        data_batch_number(batch, first + s) * size + t);
            break;
        case INPUT_n_valid:
            if (!s) counts[0] = 0;
            counts[0] += (float)data_targets(set, sequence); // whole numbers, exact up to 2^24
            break;
        case INPUT_n_valid_sequence: counts[s] = (float)data_targets(set, sequence); break;
        default: break;
        }
    }
}

Status data_fill(void *user, Exec *exec, const PlanProgram *program, int microbatch) {
    const DataBatch *batch = user;
    for (uint32_t i = 0; i < program->n_inputs; i++) {
        const PlanInput *input = &program->inputs[i];
        void *at = exec_input(exec, program, (InputKind)input->kind, input->k);
        if (!at)
            return status_fail(ERR_INTERNAL, "the program %s has no buffer for its input %u",
                               program->name, i);
        fill_input(batch, microbatch, input, at);
    }
    return OK;
}
