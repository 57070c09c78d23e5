// SPDX-License-Identifier: Apache-2.0
// For runtime/device and runtime/exec: in a build with AddressSanitizer a kernel may touch the bytes of its
// operands and nothing else of the regions. Kernels are compiled with the sanitizer then
// (runtime/jit), so one that leaves its operands, by a single number, ends the program with a
// report.
//
// All regions are closed while a segment runs; the operands of an instruction are open while it
// runs. In other builds there is no fence and nothing is done.
#ifndef MOEC_DEVICE_FENCE_H
#define MOEC_DEVICE_FENCE_H

#include "runtime/base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define MOEC_FENCED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOEC_FENCED 1
#endif
#endif

#ifdef MOEC_FENCED
#include <sanitizer/asan_interface.h>
enum { FENCED = 1, FENCE_MARGIN = 4096 }; // bytes around a region that are never open
static inline void fence(const void *at, int64_t bytes, bool closed) {
    if (closed) __asan_poison_memory_region(at, (size_t)bytes);
    else __asan_unpoison_memory_region(at, (size_t)bytes);
}
#else
enum { FENCED = 0, FENCE_MARGIN = 0 };
static inline void fence(const void *at, int64_t bytes, bool closed) {
    (void)at, (void)bytes, (void)closed;
}
#endif

#endif
