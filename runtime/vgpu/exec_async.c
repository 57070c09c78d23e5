// SPDX-License-Identifier: Apache-2.0
// cp.async and its groups (PTX ISA 9.7.9.25.3). async.h says when what is read and written.
#include <stdlib.h>

#include "runtime/vgpu/async.h"
#include "runtime/vgpu/engine.h"
#include "runtime/vgpu/exec.h"

// A copy's accesses. Registers of all sites lie in the VgCopy, which they take for the frame.
typedef struct CopySite {
    VgSite *read, *issue, *land; // of the source; of the destination, twice
    uint32_t to, from, size;     // frame offsets: addresses (0: none), src-size (0: all)
    uint32_t ignore;             // predicate: lanes that read nothing; 0: none
    bool ignore_not;
    int to_bytes, from_bytes; // of the address registers
    uint32_t bytes;           // of a lane's copy
} CopySite;

// Lanes that read less than the whole: byte by byte, the rest zero.
static VgFault read_part(VgWarp *w, const CopySite *site, const char *f, uint32_t lane,
                         uint32_t bytes, VgCopy *copy) {
    uint8_t *host, data[16] = { 0 };
    if (bytes) {
        uint64_t address =
            vg_lane(f, site->from, site->from_bytes, lane) + (uint64_t)site->read->offset;
        VgFault fault = vg_range(&w->mem, site->read, VG_READ, lane, address, bytes, &host);
        if (fault != VG_OK) return fault;
        memcpy(data, host, bytes);
    }
    for (int k = 0; k < 4; k++) memcpy(&copy->data[k][lane], data + 4 * k, 4);
    return VG_OK;
}

// Lanes whose source is shorter than the copy are read here; returns the others.
static VgFault read_short(VgWarp *w, const VgInstr *i, const char *f, uint32_t m, VgCopy *copy,
                          uint32_t *whole) {
    const CopySite *site = i->extra;
    const uint32_t *size = (const uint32_t *)(f + site->size);
    uint32_t none =
        site->ignore ? *(const uint32_t *)(f + site->ignore) ^ (site->ignore_not ? ~0u : 0) : 0;
    *whole = m;
    for (uint32_t l = 0; (site->size || site->ignore) && l < 32; l++) {
        uint32_t bytes = none >> l & 1 ? 0 : site->size ? size[l] : site->bytes;
        if (!(m >> l & 1) || bytes >= site->bytes) continue;
        VgFault fault = read_part(w, site, f, l, bytes, copy);
        if (fault != VG_OK) return fault;
        *whole &= ~(1u << l);
    }
    return VG_OK;
}

HANDLER(copy_async) {
    uint32_t m = VG_MASK(i, w, f), whole;
    if (!m) VG_NEXT(i, w, f);
    const CopySite *site = i->extra;
    VgCopy *copy = vg_copy_new(w);
    if (!copy) return vg_fault(w, i, VG_NO_MEMORY, m, "no memory for an asynchronous copy");
    const VgCopies *copies = w->async;
    copy->land = site->land, copy->instr = i, copy->mask = m;
    memcpy(copy->group, copies->committed, sizeof copy->group);
    for (uint32_t l = 0; l < 32; l++) {
        copy->address[l] = vg_lane(f, site->to, site->to_bytes, l);
        if (site->size && m >> l & 1 && ((const uint32_t *)(f + site->size))[l] > site->bytes)
            return vg_fault(w, i, VG_ILLEGAL_INSTRUCTION, 1u << l,
                            "src-size %u is larger than the copy of %u bytes",
                            ((const uint32_t *)(f + site->size))[l], site->bytes);
    }
    VgFault fault = read_short(w, i, f, m, copy, &whole);
    if (fault == VG_OK && whole)
        fault = site->read->run(&w->mem, site->read, whole, site->from ? f + site->from : NULL,
                                (char *)copy);
    if (fault == VG_OK)
        fault = site->issue->run(&w->mem, site->issue, m, copy->address, (char *)copy);
    if (fault != VG_OK) return vg_fault_record(w, i, fault);
    VG_NEXT(i, w, f);
}

HANDLER(commit) {
    uint32_t m = VG_MASK(i, w, f);
    VgCopies *copies = vg_copies(w);
    if (!copies) return vg_fault(w, i, VG_NO_MEMORY, m, "no memory for an asynchronous copy");
    for (int l = 0; l < 32; l++) copies->committed[l] += m >> l & 1;
    copies->open = copies->open && !m;
    VG_NEXT(i, w, f);
}

// imm: all but so many groups; -1: everything, committed or not.
HANDLER(wait_copies) {
    uint32_t m = VG_MASK(i, w, f);
    const VgCopies *copies = w->async;
    if (copies && m) {
        int64_t before[32];
        const VgInstr *copy = i;
        for (int l = 0; l < 32; l++) before[l] = (int64_t)copies->committed[l] - i->imm;
        VgFault fault =
            vg_copies_land(w, &w->mem, copies->issued, m, i->imm < 0 ? NULL : before, &copy);
        if (fault != VG_OK) return vg_fault_record(w, copy, fault);
    }
    VG_NEXT(i, w, f);
}

/* decoding ------------------------------------------------------------------------------------- */

static VgSite *data_site(VgDecoder *d, VgSpace space, VgAccess access, uint32_t bytes) {
    VgSite *site = vg_site(d);
    site->space = (uint8_t)space, site->access = (uint8_t)access;
    site->scope = VG_SCOPE_SYS;
    site->reg_bytes = 4;
    site->bytes = 4, site->vector = (uint8_t)(bytes / 4);
    for (uint32_t k = 0; k < 4; k++)
        site->reg[k] = site->source[k] =
            (uint32_t)(offsetof(VgCopy, data) + k * sizeof((VgCopy *)0)->data[0]);
    return site;
}

static Status decode_copy(VgDecoder *d, const PtxInstr *p) {
    static const char *const hints[] = { "L2::64B", "L2::128B", "L2::256B", NULL };
    bool cg = vg_take(d, "cg");
    if (!cg && !vg_take(d, "ca")) return vg_bad(d, "expected .ca or .cg");
    if (!vg_take(d, "shared") && !vg_take(d, "shared::cta")) return vg_bad(d, "expected .shared");
    if (!vg_take(d, "global")) return vg_bad(d, "expected .global");
    bool hint = vg_take(d, "L2::cache_hint");
    while (vg_take_one(d, hints) >= 0) {}
    TRY(vg_count(d, 3, hint ? 5 : 4));
    uint64_t bytes;
    uint32_t size;
    TRY(vg_src(d, &p->operands[2], 32, &size));
    if (!vg_is_const(d, size, &bytes) || (bytes != 4 && bytes != 8 && bytes != 16) ||
        (cg && bytes != 16))
        return vg_bad(d, "expected a size of %s", cg ? "16" : "4, 8 or 16");
    CopySite *site = ARENA_NEW(vg_arena(d), CopySite);
    site->bytes = (uint32_t)bytes;
    site->read = data_site(d, VG_GLOBAL, VG_READ, site->bytes);
    site->issue = data_site(d, VG_SHARED, VG_WRITE, site->bytes);
    uint32_t to, from, part = 0;
    int to_bytes, from_bytes;
    TRY(vg_address(d, &p->operands[0], &to, &site->issue->offset, &to_bytes));
    TRY(vg_address(d, &p->operands[1], &from, &site->read->offset, &from_bytes));
    if (p->n_operands > 3u + hint) {
        const PtxOperand *last =
            &p->operands[3]; // how much of the source there is, or whether to ignore it
        if (last->kind == PTX_OP_REG && last->var->type == PTX_PRED)
            TRY(vg_pred(d, last, &site->ignore, &site->ignore_not));
        else
            TRY(vg_src(d, last, 32, &part));
    }
    site->read->address_bytes = (uint8_t)from_bytes;
    site->issue->address_bytes = 8; // as they are kept
    site->to_bytes = to_bytes, site->from_bytes = from_bytes;
    site->read->flight = site->issue->flight = VG_TAKES_OFF;
    site->read->run = vg_access_select(site->read);
    site->issue->run = vg_access_select(site->issue);
    site->land = ARENA_NEW(vg_arena(d), VgSite);
    *site->land = *site->issue;
    site->land->flight = VG_LANDING;
    site->land->run = vg_access_select(site->land);
    VgInstr *i = vg_emit(d, copy_async);
    i->extra = site;
    site->to = to, site->from = from, site->size = part;
    vg_emit_list(d, &site->to, 0, 3); // to, from, size follow each other
    return OK;
}
_Static_assert(offsetof(CopySite, size) == offsetof(CopySite, to) + 2 * sizeof(uint32_t),
               "one list");

static Status decode_cp(VgDecoder *d, const PtxInstr *p) {
    if (!vg_take(d, "async")) return vg_bad(d, "expected .async");
    if (vg_has(d, "bulk")) return vg_decode_bulk(d, p);
    if (vg_take(d, "commit_group")) {
        TRY(vg_count(d, 0, 0));
        vg_emit(d, commit);
        return OK;
    }
    if (vg_take(d, "wait_all")) {
        TRY(vg_count(d, 0, 0));
        vg_emit(d, wait_copies)->imm = -1;
        return OK;
    }
    if (vg_take(d, "wait_group")) {
        uint64_t n;
        uint32_t ref;
        TRY(vg_count(d, 1, 1));
        TRY(vg_src(d, &p->operands[0], 32, &ref));
        if (!vg_is_const(d, ref, &n)) return vg_bad(d, "expected a number of groups");
        vg_emit(d, wait_copies)->imm = (int64_t)n;
        return OK;
    }
    if (vg_take(d, "mbarrier")) return vg_decode_async_arrive(d, p);
    return decode_copy(d, p);
}

const VgRoot VG_NAME(vg_roots_async)[] = {
    { "cp", decode_cp,
      "cp.async.{ca,cg}.shared.global{.L2::128B}, cp.async.commit_group, "
      "cp.async.wait_{group,all}, "
      "cp.async.mbarrier.arrive{.noinc}{.shared}.b64, "
      "cp.async.bulk.{shared::cluster,shared::cta}.global."
      "mbarrier::complete_tx::bytes{.multicast::cluster}, "
      "cp.async.bulk.shared::cluster.shared::cta."
      "mbarrier::complete_tx::bytes, cp.async.bulk.global.shared::cta.bulk_group, "
      "cp.async.bulk.commit_group, "
      "cp.async.bulk.wait_group{.read}, cp.async.bulk.prefetch.L2.global" },
    { NULL, NULL, NULL },
};
