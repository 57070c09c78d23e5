// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for data files: gzip, NumPy headers, token ids of each size, documents by an end
// token. Every token that comes out must be of the vocabulary or -1, and labels must be as many as
// targets. The first byte chooses how the rest is read. Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_tokens -max_len=4096 tests/fuzz/corpus/tokens
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/train/data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_set(const DataSet *set, int64_t vocab) {
    int32_t tokens[7], labels[7], positions[7], segments[7], next = 0;
    int64_t targets = 0;
    for (int64_t i = 0; i < set->n_sequences; i++) {
        int64_t n = 0;
        data_tokens(set, i, 0, tokens);
        data_tokens(set, i, 1, labels);
        next = data_places(set, i, next, positions, segments);
        for (int t = 0; t < 7; t++) {
            if (tokens[t] < -1 || tokens[t] >= vocab || labels[t] < -1 || labels[t] >= vocab)
                abort();
            if (labels[t] >= 0 && (tokens[t] < 0 || tokens[t] == set->eos)) abort();
            if (t && segments[t] == segments[t - 1] && positions[t] != positions[t - 1] + 1)
                abort();
            n += labels[t] >= 0;
        }
        if (n != data_targets(set, i)) abort();
        targets += n;
        int32_t ahead[7];
        data_tokens(set, i, 5, ahead); // further than a sequence's rest
        for (int t = 0; t < 7; t++)
            if (ahead[t] >= 0 && labels[t] < 0) abort();
    }
    if (targets != set->n_targets) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    if (!size) return 0;
    int kind = bytes[0];
    char path[64];
    int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes + 1, size - 1) != (ssize_t)(size - 1)) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const char *const files[] = { path };
    DataOptions options = { .files = files, .n_files = 1, .sequence = 7 };
    options.item = 1 << kind % 3;
    options.vocab = kind & 4 ? 100 : (int64_t)1 << (options.item == 4 ? 31 : 8 * options.item);
    options.eos = kind & 8 ? 3 : -1;
    options.held_out = kind >> 4;
    Data *data;
    if (data_open(&options, &data) == OK) {
        check_set(&data->train, options.vocab);
        check_set(&data->held_out, options.vocab);
        data_close(data);
    }
    close(fd);
    return 0;
}
