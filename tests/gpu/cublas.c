// SPDX-License-Identifier: Apache-2.0
// Times one product of cuBLAS by the clock of the host, over enough of them that waiting costs nothing.
#include "tests/gpu/cublas.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/library.h"

// cudaDataType, cublasComputeType_t and cublasGemmAlgo_t, after the manual.
enum { TYPE_F32 = 0, TYPE_BF16 = 14, COMPUTE_F32 = 68, ALGORITHM_DEFAULT = -1, NO_TRANSPOSE = 0 };
enum { ROUNDS = 5 };

Status cublas_open(Cublas *cublas) {
    Arena *arena = arena_create();
    if (!arena) return status_fail(ERR_MEMORY, "no memory for cuBLAS");
    LibraryPlaces blas = { .arena = arena }, driver = { .arena = arena };
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so" };
    for (int i = 0; i < COUNT_OF(names); i++) {
        library_add(&blas, names[i]);
        library_add_folders(&blas, "/usr/local/cuda/lib64", names[i]);
        library_add_folders(&blas, "/usr/local/cuda-*/lib64", names[i]);
    }
    library_add(&driver, "libcuda.so.1");
    int (*create)(void **handle);
    const LibrarySymbol of_driver[] = {
        { "cuMemAlloc_v2", offsetof(Cublas, alloc), false },
        { "cuMemFree_v2", offsetof(Cublas, release), false },
        { "cuMemsetD32_v2", offsetof(Cublas, fill), false },
        { "cuCtxSynchronize", offsetof(Cublas, wait), false },
    };
    const LibrarySymbol of_blas[] = {
        { "cublasGemmEx", offsetof(Cublas, gemm), false },
        { "cublasDestroy_v2", offsetof(Cublas, destroy), false },
    };
    const LibrarySymbol of_start[] = { { "cublasCreate_v2", 0, false } };
    void *library;
    const char *where;
    Status status;
    TRY_GOTO(library_open(&driver, "the CUDA driver", "it comes with a GPU", &library, &where), end);
    TRY_GOTO(library_fill(library, where, of_driver, COUNT_OF(of_driver), cublas), end);
    TRY_GOTO(library_open(&blas, "cuBLAS", "it comes with the toolkit", &library, &where), end);
    TRY_GOTO(library_fill(library, where, of_blas, COUNT_OF(of_blas), cublas), end);
    TRY_GOTO(library_fill(library, where, of_start, COUNT_OF(of_start), &create), end);
    if (create(&cublas->handle) != 0) {
        cublas->handle = NULL;
        status = status_fail(ERR_DEVICE, "cuBLAS does not start");
    }
end:
    arena_destroy(arena);
    return status;
}

void cublas_close(Cublas *cublas) {
    if (cublas->handle) cublas->destroy(cublas->handle);
    cublas->handle = NULL;
}

// Row-major [m, k] x [k, n] is column-major [n, k] x [k, m].
static int launch(Cublas *cublas, const Product *p, const uint64_t at[3]) {
    const float one = 1, zero = 0;
    int type = p->bf16 ? TYPE_BF16 : TYPE_F32, m = (int)p->m, n = (int)p->n, k = (int)p->k;
    return cublas->gemm(cublas->handle, NO_TRANSPOSE, NO_TRANSPOSE, n, m, k, &one,
                        (const void *)(uintptr_t)at[1], type, n, (const void *)(uintptr_t)at[0],
                        type, k, &zero, (void *)(uintptr_t)at[2], TYPE_F32, n, COMPUTE_F32,
                        ALGORITHM_DEFAULT);
}

static double time_product(Cublas *cublas, const Product *p, const uint64_t at[3]) {
    int each = (int)max_i64(1, min_i64(200, (int64_t)(2e11 / (2.0 * (double)p->m * (double)p->n *
                                                               (double)p->k))));
    double best = (double)INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double begin = time_seconds();
        for (int i = 0; i < each; i++)
            if (launch(cublas, p, at) != 0) return (double)NAN;
        if (cublas->wait() != 0) return (double)NAN;
        best = fmin(best, (time_seconds() - begin) / each);
    }
    return best;
}

double cublas_seconds(Cublas *cublas, const Product *p) {
    if (!cublas->handle) return (double)NAN;
    size_t item = p->bf16 ? 2 : 4;
    const size_t bytes[3] = { (size_t)(p->m * p->k) * item, (size_t)(p->k * p->n) * item,
                              (size_t)(p->m * p->n) * 4 };
    uint64_t at[3] = { 0 };
    bool good = true;
    for (int i = 0; i < 3; i++) {
        good = good && cublas->alloc(&at[i], bytes[i] + 4) == 0;
        good = good && cublas->fill(at[i], 0, bytes[i] / 4 + 1) == 0;
    }
    double seconds = good ? time_product(cublas, p, at) : (double)NAN;
    for (int i = 0; i < 3; i++)
        if (at[i]) cublas->release(at[i]);
    return seconds;
}
