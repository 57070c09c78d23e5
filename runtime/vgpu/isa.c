// SPDX-License-Identifier: Apache-2.0
// Which build of the handlers runs: the two sets, and the choice between them. With sanitizers, whose
// instrumentation makes these files slow to compile, only the lesser is built (VG_V3_ONLY).
#include <stdlib.h>

#include "runtime/vgpu/code.h"

#define DECLARE(isa)                                                                               \
    extern const VgForm vg_forms_int_##isa[], vg_forms_float_##isa[], vg_forms_half_##isa[];       \
    extern const VgRoot vg_roots_int_##isa[], vg_roots_float_##isa[], vg_roots_cvt_##isa[],        \
        vg_roots_warp_##isa[], vg_roots_mem_##isa[];                        \
    const VgInstr *vg_move32_##isa(const VgInstr *i, VgWarp *w, char *f);                          \
    const VgInstr *vg_move64_##isa(const VgInstr *i, VgWarp *w, char *f);                          \
    const VgInstr *vg_narrow_##isa(const VgInstr *i, VgWarp *w, char *f);                          \
    const VgInstr *vg_widen_##isa(const VgInstr *i, VgWarp *w, char *f);                           \
    const VgInstr *vg_widen_signed_##isa(const VgInstr *i, VgWarp *w, char *f);                    \
    extern const VgRoot vg_roots_tensor_##isa[], vg_roots_matrix_##isa[],            \
        vg_roots_async_##isa[];
DECLARE(v3)
#ifndef VG_V3_ONLY
DECLARE(v4)
#endif

extern const VgRoot vg_roots_control[], vg_roots_engine[];

#define SET(isa)                                                                                   \
    const VgIsa vg_isa_##isa = {                                                                   \
        { vg_forms_int_##isa, vg_forms_float_##isa, vg_forms_half_##isa },                         \
        { vg_roots_int_##isa, vg_roots_float_##isa, vg_roots_cvt_##isa,       \
          vg_roots_warp_##isa, vg_roots_mem_##isa, vg_roots_control, vg_roots_tensor_##isa,        \
          vg_roots_matrix_##isa,                                                                   \
          vg_roots_async_##isa, vg_roots_engine },                                                 \
        vg_move32_##isa, vg_move64_##isa, vg_narrow_##isa, vg_widen_##isa,         \
        vg_widen_signed_##isa                                                                      \
    };
SET(v3)
#ifdef VG_V3_ONLY
#define vg_isa_v4 vg_isa_v3
#else
SET(v4)
#endif

const VgIsa *vg_isa(void) {
    const char *ask = getenv("MOEC_VGPU_ISA");
    bool v4 = __builtin_cpu_supports("x86-64-v4") != 0;
    return v4 && !(ask && !strcmp(ask, "v3")) ? &vg_isa_v4 : &vg_isa_v3;
}
