// SPDX-License-Identifier: Apache-2.0
// Temporary files, and assertions over Status.
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "tests/train/helpers.h"

static Arena *arena;
static const char *folders[64];
static int n_folders;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_all(void) {
    for (int i = 0; i < n_folders; i++) nftw(folders[i], remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    arena_destroy(arena);
}

static Arena *memory(void) {
    if (arena) return arena;
    arena = arena_create();
    assert_non_null(arena);
    atexit(remove_all);
    return arena;
}

const char *scratch_folder(void) {
    assert_true(n_folders < COUNT_OF(folders));
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(memory(), "%s/moec-test-XXXXXX", base ? base : "/tmp");
    assert_non_null(mkdtemp(path));
    return folders[n_folders++] = path;
}

char *path_in(const char *folder, const char *name) {
    return arena_printf(memory(), "%s/%s", folder, name);
}

void write_file(const char *path, const void *bytes, size_t n) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

char *read_whole(const char *path, size_t *n) {
    char *bytes;
    EXPECT_OK(file_read(path, memory(), &bytes, n));
    return bytes;
}

size_t gzip_bytes(const void *bytes, size_t n, uint8_t *out, size_t cap) {
    z_stream z = { .next_in = (Bytef *)(uintptr_t)bytes,
                   .avail_in = (uInt)n,
                   .next_out = out,
                   .avail_out = (uInt)cap };
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return z.total_out;
}

Status write_tensors(const char *path, Tensor *tensors, int n) {
    TensorPiece pieces[8];
    assert_true(n <= COUNT_OF(pieces));
    for (int i = 0; i < n; i++) {
        tensors[i].offset = i ? tensors[i - 1].offset + tensors[i - 1].bytes : 0;
        pieces[i] = (TensorPiece){ i, 0, tensors[i].bytes, (float *)(uintptr_t)tensors[i].at };
    }
    TRY(tensors_create(path, tensors, n));
    return tensors_fill(path, tensors, pieces, n, NULL);
}

void expect_failure(Status status, Status expected, const char *part) {
    if (status != expected) print_error("found status %d: %s\n", status, status_message());
    assert_int_equal(status, expected);
    if (!strstr(status_message(), part))
        print_error("'%s' is not in: %s\n", part, status_message());
    assert_non_null(strstr(status_message(), part));
}

void expect_ok(Status status, const char *what) {
    if (status != OK) print_error("%s: %s\n", what, status_message());
    assert_int_equal(status, OK);
}
