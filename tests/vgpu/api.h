// SPDX-License-Identifier: Apache-2.0
// The driver as a program sees it: every call through a pointer found in the library by dlopen.
#ifndef TESTS_VGPU_API_H
#define TESTS_VGPU_API_H

#include <stdbool.h>

#include "runtime/vgpu/cuda_api.h"

typedef struct Api {
#define X(symbol, name, version, params) CUresult (*symbol) params;
    CUDA_CALLS(X)
#undef X
    int (*vgpuInit)(const char *arch);
    const char *(*vgpuLastReport)(void);
    int (*vgpuReportCount)(void);
    void (*vgpuClearReports)(void);
    const char *(*vgpuLastMessage)(void);
    void *library;
} Api;
extern Api api;

void api_open(void);                       // the library and its calls; findings are not printed
// A device of `arch` with operations in `order` (of MOEC_VGPU_ORDER), its primary context current.
void api_begin(const char *arch, const char *order);
void api_end(void);                        // releases what api_begin took
// Fails with the driver's message when a call did.
#define MUST(call) api_must((call), #call, __FILE__, __LINE__)
void api_must(CUresult result, const char *call, const char *file, int line);
// Fails when the call does not give that error.
#define EXPECT(error, call) api_expect((error), (call), #call, __FILE__, __LINE__)
void api_expect(CUresult error, CUresult result, const char *call, const char *file, int line);
CUfunction api_kernel(CUmodule *module, const char *ptx, const char *name);

#endif
