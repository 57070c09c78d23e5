// SPDX-License-Identifier: Apache-2.0
// cuBLAS by dlopen, as a measure to stand beside. Own declarations after its manual. It runs in a process
// of its own: whatever becomes of it, this one has its own times, and reports what happened in words.
#ifndef MOEC_TESTS_CUBLAS_H
#define MOEC_TESTS_CUBLAS_H

#include "runtime/base/base.h"

typedef struct Product {
    int64_t m, n, k; // [m, k] times [k, n]
    bool bf16;       // inputs; sums and results are fp32, products of fp32 inputs are fp32
} Product;

// seconds[i]: of product i, the best of a few runs of several each; NaN where there is none. Fails with what
// is missing, or how the process ended; what was measured before stays.
Status cublas_measure(const char *device, const Product *products, int n, double *seconds);
// What the other process does, from its command line: moec-gpu --cublas DEVICE M:N:K:BF16...
int cublas_main(const char *device, char *const *products, int n);

#endif
