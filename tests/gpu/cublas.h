// SPDX-License-Identifier: Apache-2.0
// cuBLAS by dlopen, as a measure to stand beside. Own declarations after its manual.
#ifndef MOEC_TESTS_CUBLAS_H
#define MOEC_TESTS_CUBLAS_H

#include "runtime/base/base.h"

typedef struct Product {
    int64_t m, n, k; // [m, k] times [k, n]
    bool bf16;       // inputs; sums and results are fp32, products of fp32 inputs are fp32
} Product;

typedef struct Cublas {
    void *handle; // NULL: not there
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm);
    int (*destroy)(void *handle);
    int (*alloc)(uint64_t *at, size_t bytes);
    int (*release)(uint64_t at);
    int (*fill)(uint64_t at, unsigned word, size_t words);
    int (*wait)(void);
} Cublas;

// In the context of this thread, which must be current.
Status cublas_open(Cublas *cublas);
void cublas_close(Cublas *cublas);
// The best of a few runs of several products each; NaN without cuBLAS.
double cublas_seconds(Cublas *cublas, const Product *product);

#endif
