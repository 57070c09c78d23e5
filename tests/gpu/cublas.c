// SPDX-License-Identifier: Apache-2.0
// Times one product of cuBLAS by the clock of the host, over enough of them that waiting costs nothing.
//
// The other process prints a line per product, its seconds, or a line "error: ...".
#include "tests/gpu/cublas.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/library.h"

// cudaDataType, cublasComputeType_t and cublasGemmAlgo_t, after the manual.
enum { TYPE_F32 = 0, TYPE_BF16 = 14, COMPUTE_F32 = 68, ALGORITHM_DEFAULT = -1, NO_TRANSPOSE = 0 };
enum { ROUNDS = 5, MOST_PRODUCTS = 256, MOST_SECONDS = 90 /* of the other process */ };

typedef struct Cublas {
    void *handle;
    int (*create)(void **handle);
    int (*gemm)(void *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c,
                int type_c, int ldc, int compute, int algorithm);
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int ordinal);
    int (*context_retain)(void **context, int device);
    int (*context_set)(void *context);
    int (*alloc)(uint64_t *at, size_t bytes);
    int (*release)(uint64_t at);
    int (*fill)(uint64_t at, unsigned word, size_t words);
    int (*wait)(void);
} Cublas;

/* The other process ---------------------------------------------------------------------------- */

static Status open_libraries(Cublas *cublas, Arena *arena) {
    LibraryPlaces blas = { .arena = arena }, driver = { .arena = arena };
    static const char *const names[] = { "libcublas.so.13", "libcublas.so.12", "libcublas.so" };
    const char *own = getenv("MOEC_CUBLAS"), *home = getenv("CUDA_HOME"), *where;
    if (own && *own) library_add(&blas, own);
    for (int i = 0; i < COUNT_OF(names); i++) {
        library_add(&blas, names[i]);
        if (home && *home) library_add(&blas, arena_printf(arena, "%s/lib64/%s", home, names[i]));
        library_add_folders(&blas, "/usr/local/cuda/lib64", names[i]);
        library_add_folders(&blas, "/usr/local/cuda-*/lib64", names[i]);
    }
    library_add(&driver, "libcuda.so.1");
    library_add_folders(&driver, "/usr/local/nvidia/lib64", "libcuda.so.1");
    library_add_folders(&driver, "/usr/lib/wsl/lib", "libcuda.so.1");
    const LibrarySymbol of_driver[] = {
        { "cuInit", offsetof(Cublas, init), false },
        { "cuDeviceGet", offsetof(Cublas, device_get), false },
        { "cuDevicePrimaryCtxRetain", offsetof(Cublas, context_retain), false },
        { "cuCtxSetCurrent", offsetof(Cublas, context_set), false },
        { "cuMemAlloc_v2", offsetof(Cublas, alloc), false },
        { "cuMemFree_v2", offsetof(Cublas, release), false },
        { "cuMemsetD32_v2", offsetof(Cublas, fill), false },
        { "cuCtxSynchronize", offsetof(Cublas, wait), false },
    };
    const LibrarySymbol of_blas[] = {
        { "cublasCreate_v2", offsetof(Cublas, create), false },
        { "cublasGemmEx", offsetof(Cublas, gemm), false },
    };
    void *library;
    TRY(library_open(&driver, "the CUDA driver", "it comes with a GPU", &library, &where));
    TRY(library_fill(library, where, of_driver, COUNT_OF(of_driver), cublas));
    TRY(library_open(&blas, "cuBLAS", "it comes with the toolkit; MOEC_CUBLAS may be its path", &library, &where));
    return library_fill(library, where, of_blas, COUNT_OF(of_blas), cublas);
}

static Status open_cublas(Cublas *cublas, int ordinal) {
    void *context;
    int device;
    Arena *arena = arena_create();
    Status status = arena ? open_libraries(cublas, arena) : status_fail(ERR_MEMORY, "no memory for cuBLAS");
    arena_destroy(arena);
    TRY(status);
    if (cublas->init(0) != 0 || cublas->device_get(&device, ordinal) != 0 ||
        cublas->context_retain(&context, device) != 0 || cublas->context_set(context) != 0)
        return status_fail(ERR_DEVICE, "cuBLAS's process has no GPU");
    int result = cublas->create(&cublas->handle);
    return result == 0 ? OK : status_fail(ERR_DEVICE, "cuBLAS does not start on this driver (status %d)", result);
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

static double measure(Cublas *cublas, const Product *p) {
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

int cublas_main(const char *device, char *const *products, int n) {
    Cublas cublas = { 0 };
    alarm(MOST_SECONDS);
    if (open_cublas(&cublas, device[4] == ':' ? atoi(device + 5) : 0) != OK) {
        printf("error: %s\n", status_message());
        return 1;
    }
    for (int i = 0; i < n; i++) {
        long long size[3];
        int bf16;
        if (sscanf(products[i], "%lld:%lld:%lld:%d", &size[0], &size[1], &size[2], &bf16) != 4) return 2;
        printf("%.9g\n", measure(&cublas, &(Product){ size[0], size[1], size[2], bf16 }));
        fflush(stdout);
    }
    return 0;
}

/* This process --------------------------------------------------------------------------------- */

static _Noreturn void become(const char *device, const Product *products, int n, int out, Arena *arena) {
    char **args = ARENA_ARRAY(arena, char *, n + 4);
    args[0] = arena_strdup(arena, "moec-gpu");
    args[1] = arena_strdup(arena, "--cublas");
    args[2] = arena_strdup(arena, device);
    for (int i = 0; i < n; i++)
        args[3 + i] = arena_printf(arena, "%lld:%lld:%lld:%d", (long long)products[i].m, (long long)products[i].n,
                                   (long long)products[i].k, products[i].bf16);
    dup2(out, STDOUT_FILENO);
    execv("/proc/self/exe", args);
    _exit(127);
}

static Status read_times(FILE *in, int n, double *seconds) {
    char line[4096];
    Status status = OK;
    for (int i = 0; fgets(line, sizeof line, in);) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "error: ", 7)) status = status_fail(ERR_DEVICE, "%s", line + 7);
        else if (status == OK && i < n) seconds[i++] = atof(line);
    }
    return status;
}

static Status ended(int result) {
    if (WIFSIGNALED(result))
        return status_fail(ERR_DEVICE, "cuBLAS's process was stopped by signal %d (%s)", WTERMSIG(result),
                           strsignal(WTERMSIG(result)));
    if (WEXITSTATUS(result)) return status_fail(ERR_DEVICE, "cuBLAS's process ended with status %d", WEXITSTATUS(result));
    return OK;
}

Status cublas_measure(const char *device, const Product *products, int n, double *seconds) {
    for (int i = 0; i < n; i++) seconds[i] = (double)NAN;
    int ends[2], result;
    n = (int)min_i64(n, MOST_PRODUCTS);
    Arena *arena = arena_create();
    if (!arena || pipe(ends) != 0) return status_fail(ERR_MEMORY, "no pipe to cuBLAS: %s", strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (!pid) {
        close(ends[0]);
        become(device, products, n, ends[1], arena);
    }
    arena_destroy(arena);
    close(ends[1]);
    FILE *in = fdopen(ends[0], "r");
    Status status = in ? read_times(in, n, seconds) : status_fail(ERR_MEMORY, "no memory for cuBLAS");
    if (in) fclose(in);
    else close(ends[0]);
    if (pid < 0) return status_fail(ERR_MEMORY, "no process for cuBLAS: %s", strerror(errno));
    while (waitpid(pid, &result, 0) < 0)
        if (errno != EINTR) return status_fail(ERR_IO, "cannot wait for cuBLAS: %s", strerror(errno));
    return status != OK ? status : ended(result);
}
