// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of runtime/train: temporary folders, files, and a small plan written by hand.
#ifndef MOEC_TEST_TRAIN_HELPERS_H
#define MOEC_TEST_TRAIN_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "runtime/train/train.h"

// A fresh folder under $TMPDIR, removed at exit with all that is in it.
const char *scratch_folder(void);
char *path_in(const char *folder, const char *name);           // owned by the helpers
void write_file(const char *path, const void *bytes, size_t n);
char *read_whole(const char *path, size_t *n);                 // owned by the helpers
size_t gzip_bytes(const void *bytes, size_t n, uint8_t *out, size_t cap); // one member

// A file of the tensors; `at` has their numbers.
Status write_tensors(const char *path, Tensor *tensors, int n);
// The status is as expected and the message holds `part`.
void expect_failure(Status status, Status expected, const char *part);
#define EXPECT_OK(call) expect_ok((call), #call)
void expect_ok(Status status, const char *what);

// A bigram model over bytes: table [256, 256], experts.w [2, 3, 4] by expert (no gradient flows),
// the state "seen" [5] (counts steps). Programs step, eval and prefill; kernels in C.
Plan *bigram_plan(int64_t sequence, int64_t sequences, int32_t microbatches);

#endif
