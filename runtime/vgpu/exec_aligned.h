// SPDX-License-Identifier: Apache-2.0
// What instructions of a whole warp share, for exec_tensor.c and exec_matrix.c.
#ifndef MOEC_VGPU_EXEC_ALIGNED_H
#define MOEC_VGPU_EXEC_ALIGNED_H

#include "runtime/vgpu/exec.h"

// True: all lanes that have not exited are here, *m is the mask. Else *next is what the handler
// returns: other lanes come first, the guard is false for all, or a fault.
static inline bool begin_aligned(const VgInstr *i, VgWarp *w, char *f, uint32_t *m,
                                 const VgInstr **next) {
    *m = VG_MASK(i, w, f);
    *next = i + 1;
    if (!*m || !vg_aligned(i, w, next)) return false;
    *m = VG_MASK(i, w, f);
    if (*m == w->mask) return true;
    *next = vg_fault(w, i, VG_DIVERGED, *m,
                     "the guard of an .aligned instruction must hold for all lanes or none");
    return false;
}

// A register's new value, for the lanes of m.
static inline void keep_register(char *to, const void *from, uint32_t m) {
    const uint32_t *x = from;
    uint32_t *d = (uint32_t *)to;
    if (m == ~0u)
        memcpy(to, from, 128);
    else
        LANES d[l] = m >> l & 1 ? x[l] : d[l];
}

#endif
