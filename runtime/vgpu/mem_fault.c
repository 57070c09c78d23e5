// SPDX-License-Identifier: Apache-2.0
// From an address to its place, one lane at a time, and the words for what is wrong with it. The
// fast paths come here when something is unusual.
#include <inttypes.h>
#include <stdio.h>

#include "runtime/vgpu/shadow.h"

const char *vg_space_name(VgSpace space) {
    static const char *const names[] = { "generic address", "global", "shared", "local",
                                         "const",           "param",  "address" };
    return names[space];
}

VgFault vg_mem_fault(VgWarpMem *warp, const VgSite *site, VgFault fault, uint32_t lane,
                     uint64_t address, const char *detail, ...) {
    VgRecord *record = &warp->team->thread->record;
    VgSpace space = site->space == VG_GENERIC ? vg_space_of(address) : (VgSpace)site->space;
    VgOther other = fault == VG_RACE || fault == VG_SCOPE ? record->other : (VgOther){ 0 };
    *record = (VgRecord){
        .fault = fault, .access = (VgAccess)site->access, .space = vg_space_name(space),
        .address = address, .bytes = (uint32_t)site->bytes * (site->vector ? site->vector : 1),
        .cta = warp->cta, .warp = warp->index, .lane = lane, .site = site->id, .other = other,
    };
    va_list list;
    va_start(list, detail);
    vsnprintf(record->detail, sizeof record->detail, detail, list);
    va_end(list);
    return fault;
}

static void hint(VgWarpMem *warp, const char *text) {
    snprintf(warp->team->thread->record.hint, sizeof warp->team->thread->record.hint, "%s", text);
}

static VgFault wild_global(VgWarpMem *warp, const VgSite *site, uint32_t lane, uint64_t address,
                           const VgAlloc *alloc, uint32_t bytes) {
    if (!alloc) {
        vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                     "no allocation near this address");
        if (address < 1u << 20) hint(warp, "a null pointer, or an index taken for one");
        return VG_ILLEGAL_ADDRESS;
    }
    int64_t offset = (int64_t)(address - alloc->start);
    if (!alloc->live) {
        vg_mem_fault(warp, site, VG_USE_AFTER_FREE, lane, address,
                     "offset %" PRId64 " of %s (%" PRIu64 " bytes), which has been freed", offset,
                     alloc->what, alloc->bytes);
        return VG_USE_AFTER_FREE;
    }
    if (offset < 0)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "%" PRId64 " bytes before %s (%" PRIu64 " bytes)", -offset, alloc->what,
                            alloc->bytes);
    if ((uint64_t)offset < alloc->bytes)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "%u bytes at offset %" PRId64 " reach beyond the end of %s (%" PRIu64
                            " bytes)",
                            bytes, offset, alloc->what, alloc->bytes);
    return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                        "%" PRIu64 " bytes past the end of %s (%" PRIu64 " bytes)",
                        (uint64_t)offset - alloc->bytes, alloc->what, alloc->bytes);
}

static VgFault resolve_global(VgWarpMem *warp, const VgSite *site, uint32_t lane, uint64_t address,
                              uint32_t bytes, VgPlaceMem *place, uint64_t *offset) {
    VgLaunchMem *launch = warp->team->thread->launch;
    VgAlloc *alloc = vg_alloc_at(launch->memory, address);
    if (!alloc || !alloc->live || address < alloc->start || address - alloc->start > alloc->bytes ||
        bytes > alloc->bytes - (address - alloc->start))
        return wild_global(warp, site, lane, address, alloc, bytes);
    if (alloc->read_only && site->access != VG_READ)
        return vg_mem_fault(warp, site, VG_READ_ONLY, lane, address,
                            "offset %" PRIu64 " of constant %s", address - alloc->start,
                            alloc->what);
    *place = (VgPlaceMem){ .host = alloc->host, .bytes = alloc->bytes, .alloc = alloc,
                           .history = launch->races ? alloc->history : NULL,
                           .written = launch->init ? alloc->written : NULL };
    *offset = address - alloc->start;
    return VG_OK;
}

static VgFault resolve_shared(VgWarpMem *warp, const VgSite *site, uint32_t lane, uint64_t address,
                              uint32_t bytes, VgPlaceMem *place, uint64_t *offset) {
    const VgLaunchShape *shape = &warp->team->thread->launch->shape;
    uint64_t in = site->space == VG_GENERIC ? address - VG_SHARED_WINDOW : address;
    uint32_t rank = shape->ranked ? (uint32_t)(in >> 24) : 0;
    if (!shape->ranked) rank = warp->rank;
    uint64_t at = (shape->ranked ? in & 0xffffff : in) - shape->shared_base;
    if (shape->ranked && in >> 24 >= warp->team->n_ctas)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "names block %u of a cluster of %u", rank, warp->team->n_ctas);
    if (rank != warp->rank && site->space == VG_SHARED && !site->cluster) {
        vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                     "the address is of block %u of the cluster, this one is %u", rank, warp->rank);
        hint(warp, "shared memory of another block needs a .shared::cluster access");
        return VG_ILLEGAL_ADDRESS;
    }
    *place = warp->team->cta[rank];
    if (place->gone && rank != warp->rank)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "shared memory of block %u of the cluster, which has exited", rank);
    if (at > place->bytes || bytes > place->bytes - at) {
        if (at < (uint64_t)1 << 40)
            return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                                "offset %" PRIu64 " of shared memory of %" PRIu64 " bytes", at,
                                place->bytes);
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "outside of shared memory, which is %" PRIu64 " bytes from 0x%x on",
                            place->bytes, warp->shared_base);
    }
    *offset = at;
    return VG_OK;
}

VgFault vg_resolve(VgWarpMem *warp, const VgSite *site, uint32_t lane, uint64_t address,
                   uint32_t bytes, VgPlaceMem *place, uint64_t *offset, VgSpace *space) {
    VgLaunchMem *launch = warp->team->thread->launch;
    bool generic = site->space == VG_GENERIC;
    *space = generic ? vg_space_of(address) : (VgSpace)site->space;
    if (address & (bytes - 1) & 31) {
        vg_mem_fault(warp, site, VG_MISALIGNED, lane, address,
                     "%u bytes need an address that is a multiple of %u", bytes, bytes);
        if (site->vector > 1) hint(warp, "a vector access is aligned to the whole vector");
        return VG_MISALIGNED;
    }
    switch (*space) {
    case VG_GLOBAL:
    case VG_CONST: return resolve_global(warp, site, lane, address, bytes, place, offset);
    case VG_SHARED: return resolve_shared(warp, site, lane, address, bytes, place, offset);
    case VG_LOCAL:
        *place = (VgPlaceMem){ .bytes = launch->shape.local_bytes };
        *offset = generic ? address - VG_LOCAL_WINDOW : address;
        break;
    case VG_PARAM:
        *place = launch->params;
        *offset = generic || address >= VG_PARAM_WINDOW ? address - VG_PARAM_WINDOW : address;
        if (site->access != VG_READ)
            return vg_mem_fault(warp, site, VG_READ_ONLY, lane, address, "a kernel's parameters");
        break;
    default:
        if (address >> 40 == VG_CODE_WINDOW >> 40)
            return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                                "a function's address");
        return wild_global(warp, site, lane, address, NULL, bytes);
    }
    if (*offset > place->bytes || bytes > place->bytes - *offset)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "offset %" PRIu64 " of %" PRIu64 " bytes", *offset, place->bytes);
    return VG_OK;
}

uint64_t vg_place_address(const VgWarpMem *warp, const VgSite *site, const VgPlaceMem *place,
                          uint64_t offset) {
    const VgLaunchShape *shape = &warp->team->thread->launch->shape;
    uint64_t window = site->space == VG_GENERIC ? VG_SHARED_WINDOW : 0;
    if (place->shared)
        return offset + window + shape->shared_base + (shape->ranked ? place->rank << 24 : 0);
    return offset + (place->alloc ? place->alloc->start + place->origin : 0);
}

// Which lane touches the granule, for the report of what the shadow found there.
VgFault vg_shadow_fault(VgWarpMem *warp, const VgSite *site, const VgPlaceMem *place, uint32_t mask,
                        const uint32_t *offsets, uint64_t granule) {
    VgRecord *record = &warp->team->thread->record;
    VgFault fault = record->fault;
    uint32_t bytes = (uint32_t)site->bytes * (site->vector ? site->vector : 1), lane = 0;
    for (uint32_t l = 0; l < 32; l++) {
        if (!(mask >> l & 1) || offsets[l] / 4 > granule || (offsets[l] + bytes - 1) / 4 < granule)
            continue;
        lane = l;
        break;
    }
    uint64_t address = vg_place_address(warp, site, place, offsets[lane]);
    if (place->shared && record->other.known) {
        uint16_t site_before = record->other.access == VG_READ ? place->read_site[granule]
                                                               : place->write_site[granule];
        record->other.site = site_before ? site_before - 1u : VG_NO_SITE;
    }
    if (place->alloc)
        vg_mem_fault(warp, site, fault, lane, address,
                     "word at offset %" PRIu64 " of %s (%" PRIu64 " bytes)",
                     place->origin + granule * 4, place->alloc->what, place->alloc->bytes);
    else
        vg_mem_fault(warp, site, fault, lane, address,
                     "word at offset %" PRIu64 " of shared memory", granule * 4);
    if (fault == VG_RACE && record->other.flying)
        hint(warp, "the copy is still in flight: a wait for its group or mbarrier is missing (or a "
                   "live mbarrier is there)");
    else if (fault == VG_RACE)
        hint(warp,
             place->shared || record->other.cta == warp->cta
                 ? "a barrier (or an acquire of what the other released) is missing between them"
                 : "blocks of one launch are ordered only by release and acquire");
    if (fault == VG_SCOPE)
        hint(warp, "both are strong, but the scope of one does not include the other");
    return fault;
}

/* One thread's run of bytes, granule by granule ------------------------------------------------ */

// The last step of a run: granules in a row mostly make the same one.
typedef struct LastStep { uint32_t from, to, bytes, touch; } LastStep;

static VgFault touch_granule(VgWarpMem *warp, const VgSite *site, VgAccess access, uint32_t kind,
                             const VgPlaceMem *place, uint64_t granule, uint32_t bytes,
                             LastStep *last) {
    uint32_t to;
    VgRecord *record = &warp->team->thread->record;
    if (place->written) {
        uint64_t *maps = place->written[granule / 64], bit = (uint64_t)1 << granule % 64;
        for (int b = 0; b < 4; b++) {
            if (!(bytes >> b & 1)) continue;
            if (access == VG_WRITE)
                __atomic_fetch_or(&maps[b], bit, __ATOMIC_RELAXED);
            else if (!place->alloc->whole && !(maps[b] & bit))
                return record->fault = VG_UNINITIALISED;
        }
    }
    if (!place->history) return VG_OK;
    uint32_t *word = &place->history[granule];
    bool same = last->bytes == bytes && last->from == *word;
    if (place->shared) {
        if (same)
            to = last->to;
        else if (!vg_shared_step(warp, *word, kind, bytes, &to))
            return record->fault;
        uint16_t *sites = access == VG_READ ? place->read_site : place->write_site;
        sites[granule] = site->id < UINT16_MAX ? (uint16_t)(site->id + 1) : 0;
    } else {
        if (last->bytes != bytes) last->touch = vg_touch_of(warp, site, kind, bytes);
        if (!last->touch) return VG_OK;
        if (same)
            to = last->to;
        else if (!vg_global_step(warp, *word, last->touch, &to))
            return record->fault;
    }
    last->from = *word, last->to = to, last->bytes = bytes;
    *word = to;
    return VG_OK;
}

VgFault vg_touch_run(VgWarpMem *warp, const VgSite *site, VgAccess access, uint32_t lane,
                     const VgPlaceMem *place, uint64_t offset, uint32_t bytes) {
    uint32_t kind = vg_site_kind(site, access), offsets[32] = { 0 };
    LastStep last = { 0 };
    for (uint64_t at = offset, end = offset + bytes; at < end;) {
        uint64_t granule = at / 4, to = granule * 4 + 4 < end ? granule * 4 + 4 : end;
        uint32_t map = (1u << (to - granule * 4)) - (1u << (at - granule * 4));
        VgFault fault = touch_granule(warp, site, access, kind, place, granule, map, &last);
        if (fault != VG_OK) {
            offsets[lane] = (uint32_t)at;
            return vg_shadow_fault(warp, site, place, 1u << lane, offsets, granule);
        }
        at = to;
    }
    return VG_OK;
}

VgFault vg_range(VgWarpMem *warp, const VgSite *site, VgAccess access, uint32_t lane,
                 uint64_t address, uint32_t bytes, uint8_t **host) {
    VgPlaceMem place;
    uint64_t offset;
    VgSpace space;
    VgFault fault = vg_resolve(warp, site, lane, address, 1, &place, &offset, &space);
    if (fault == VG_OK && bytes > 1) // the end, where it is
        fault =
            vg_resolve(warp, site, lane, address + bytes - 1, 1, &place, &(uint64_t){ 0 }, &space);
    if (fault != VG_OK) return fault;
    if (space == VG_LOCAL)
        return vg_mem_fault(warp, site, VG_ILLEGAL_ADDRESS, lane, address,
                            "local memory cannot be reached so");
    *host = place.host + offset;
    return vg_touch_run(warp, site, access, lane, &place, offset, bytes);
}
