// SPDX-License-Identifier: Apache-2.0
// A loaded module: its syntax tree, decoded functions, and where its variables are.
#ifndef MOEC_VGPU_MODULE_H
#define MOEC_VGPU_MODULE_H

#include "runtime/vgpu/warp.h"

struct VgKernel {
    VgModule *module;
    VgFunc *func;
    VgKernelInfo info;
    uint32_t dynamic_align;   // of its dynamic shared memory
    bool reserved;            // has the system's part of shared memory (memory.h), and may look
};
struct VgModule {
    VgDevice *device;
    Arena *arena;
    PtxModule *ptx;
    const char *text;         // copy, for reports
    VgFunc **funcs;           // decoded, in the order of ptx->funcs; NULL for external ones
    VgKernel *kernels;
    int n_kernels;
    VgSite **sites;           // memory instructions by id
    const PtxInstr **site_source;
    uint32_t n_sites, cap_sites, cap_site_source;
    uint64_t *vas;            // of allocations, to free
    uint32_t n_vas, cap_vas;
    uint32_t shared_bytes;    // of module-scope .shared variables, laid out once
    VgModule *next;
};

// Builtin functions that programs call without defining them (vprintf, __assertfail, ...); NULL:
// none.
VgHandler vg_builtin(const char *name);
VgFunc *vg_function_at(VgDevice *device, uint64_t va); // by address, NULL
bool vg_locate_site(const void *module, uint32_t site, VgPlace *place);
void vg_place_of(const VgModule *module, const PtxInstr *p, VgPlace *place);

#endif
