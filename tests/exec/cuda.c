// SPDX-License-Identifier: Apache-2.0
// Kernels of the sample plan as CUDA C++.
#include "tests/exec/cuda.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "runtime/jit/jit.h"

static const char prelude[] =
    "typedef int int32_t;\n"
    "typedef long long int64_t;\n"
    "static __device__ int64_t sample_max(int64_t a, int64_t b) { return a > b ? a : b; }\n";

bool has_nvrtc(void) {
    int major, minor;
    if (jit_cuda_compiler(&major, &minor) == OK) return true;
    print_message("skipped: %s\n", status_message());
    return false;
}

static void set_source(Plan *plan, uint32_t source, const char *text) {
    plan->sources[source].text = arena_strdup(plan->arena, text);
    plan->sources[source].bytes = (int64_t)strlen(text);
    plan->sources[source].hash = hash_bytes(text, strlen(text));
}

static void set_kernel(Plan *plan, PlanKernel *kernel, const char *body) {
    static const char *const c_types[] = {
#define X(name, text, c_type, bytes) c_type,
        PLAN_DTYPES(X)
#undef X
    };
    Text text = { 0 };
    text_printf(&text, "extern \"C\" __global__ void %s(", kernel->entry);
    for (uint32_t i = 0; i < kernel->n_args; i++)
        text_printf(&text, "%s%s%s *%s", i ? ", " : "", kernel->args[i].is_const ? "const " : "",
                    c_types[kernel->args[i].dtype], kernel->args[i].name);
    text_printf(&text,
                ") {\n    int64_t tile_begin = blockIdx.x, tile_end = tile_begin + 1;\n%s\n}\n",
                body);
    set_source(plan, kernel->source, text.at);
    kernel->hash = hash_bytes(text.at, text.bytes);
    text_finish(&text);
}

static PlanKernel *find_kernel(Plan *plan, const char *entry) {
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        if (!strcmp(plan->kernels[i].entry, entry)) return &plan->kernels[i];
    assert(!"a kernel of the plan");
    return NULL;
}

void sample_cuda_body(Plan *plan, const char *entry, const char *body, int threads, int shared) {
    PlanKernel *kernel = find_kernel(plan, entry);
    kernel->threads = threads;
    kernel->shared = shared;
    set_kernel(plan, kernel, body);
}

void sample_cuda(Plan *plan, const char *target) {
    plan->target = target;
    set_source(plan, 0, prelude);
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        PlanKernel *kernel = &plan->kernels[i];
        const char *source = plan->sources[kernel->source].text;
        const char *begin = strstr(source, "{\n"), *end = strstr(source, "\n}\nvoid ");
        assert(begin && end && begin < end);
        kernel->threads = 32;
        set_kernel(plan, kernel,
                   arena_printf(plan->arena, "    if (threadIdx.x) return;\n%.*s",
                                (int)(end - begin - 2), begin + 2));
    }
}
