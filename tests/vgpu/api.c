// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/vgpu/api.h"

Api api;

static void *find(const char *symbol) {
    void *at = dlsym(api.library, symbol);
    if (!at) fail_msg("the library has no %s", symbol);
    return at;
}

void api_open(void) {
    if (api.library) return;
    setenv("MOEC_VGPU_QUIET", "1", 1);
    api.library = dlopen(MOEC_BINARY_DIR "/libmoec-vgpu.so", RTLD_NOW | RTLD_LOCAL);
    if (!api.library) fail_msg("%s", dlerror());
#define X(symbol, name, version, params) *(void **)&api.symbol = find(#symbol);
    CUDA_CALLS(X)
#undef X
    *(void **)&api.vgpuInit = find("vgpuInit");
    *(void **)&api.vgpuLastReport = find("vgpuLastReport");
    *(void **)&api.vgpuReportCount = find("vgpuReportCount");
    *(void **)&api.vgpuClearReports = find("vgpuClearReports");
    *(void **)&api.vgpuLastMessage = find("vgpuLastMessage");
}

void api_begin(const char *arch, const char *order) {
    api_open();
    CUcontext context;
    setenv("MOEC_VGPU_ORDER", order, 1);
    MUST(api.vgpuInit(arch));
    MUST(api.cuDevicePrimaryCtxRetain(&context, 0));
    MUST(api.cuCtxSetCurrent(context));
}

void api_end(void) {
    MUST(api.cuCtxSetCurrent(NULL));
    MUST(api.cuDevicePrimaryCtxRelease_v2(0));
}

static const char *name_of(CUresult result) {
    const char *name;
    return api.cuGetErrorName(result, &name) ? "no such error" : name;
}

void api_must(CUresult result, const char *call, const char *file, int line) {
    if (!result) return;
    char text[1200];
    snprintf(text, sizeof text, "%s: %s: %s; %s", call, name_of(result), api.vgpuLastMessage(),
             api.vgpuLastReport());
    print_error("%s\n", text);
    _fail(file, line);
}

void api_expect(CUresult error, CUresult result, const char *call, const char *file, int line) {
    if (result == error) return;
    print_error("%s: expected %s, got %s: %s\n", call, name_of(error), name_of(result),
                api.vgpuLastMessage());
    _fail(file, line);
}

CUfunction api_kernel(CUmodule *module, const char *ptx, const char *name) {
    CUfunction function;
    MUST(api.cuModuleLoadData(module, ptx));
    MUST(api.cuModuleGetFunction(&function, *module, name));
    return function;
}
