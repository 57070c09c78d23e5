// SPDX-License-Identifier: Apache-2.0
// What libmoec-vgpu.so has beside the CUDA driver API. Everything else is as in NVIDIA's cuda.h.
#ifndef MOEC_VGPU_H
#define MOEC_VGPU_H

#define VGPU_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// Chooses the device: "sm_80", "sm_90a", ... Before cuInit, or later while no context of another one
// exists. Without it the environment variable MOEC_VGPU decides, else sm_90a. Returns a CUresult.
VGPU_API int vgpuInit(const char *arch);
// The text of the last finding (a fault of a kernel, a read of bytes never written, ...): kernel,
// block, warp, thread, PTX line, source line, the other access. "" when there is none. Valid until
// the next finding.
VGPU_API const char *vgpuLastReport(void);
VGPU_API int vgpuReportCount(void);
VGPU_API void vgpuClearReports(void);
// A program that prints vgpuLastReport() when a call fails turns off (0) that faults of kernels are
// printed here too. What lets a kernel or a copy go on is printed all the same.
VGPU_API void vgpuPrintFaults(int print);
// Why the last call of this thread failed, in words. "" when it did not say.
VGPU_API const char *vgpuLastMessage(void);
// Host functions run one after the other, as they may on hardware, so that one which waits for another
// hangs here. A library that knows what it does turns that off (1): each then has a thread for itself.
VGPU_API void vgpuHostFunctionsMayWait(int they_may);

#ifdef __cplusplus
}
#endif

#endif
