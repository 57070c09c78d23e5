// SPDX-License-Identifier: Apache-2.0
// Which function does a memory instruction, on this host.
#include "runtime/vgpu/code.h"
#include "runtime/vgpu/shadow.h"

VgAccessFn *vg_access_v3(const VgSite *site);
VgAccessFn *vg_access_v4(const VgSite *site);

VgAccessFn *vg_access_select(const VgSite *site) {
    if (site->access == VG_ATOMIC) return vg_atom_access;
#ifdef VG_V3_ONLY
    return vg_access_v3(site);
#else
    return vg_isa() == &vg_isa_v4 ? vg_access_v4(site) : vg_access_v3(site);
#endif
}
