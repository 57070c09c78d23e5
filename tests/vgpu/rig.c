// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/vgpu/rig.h"

static uint32_t next_site;

static void begin_launch(Rig *rig, const RigShape *shape) {
    VgLaunchShape launch = {
        .n_ctas = shape->n_ctas, .cluster_ctas = shape->cluster ? shape->cluster : 1,
        .cta_threads = shape->threads, .shared_bytes = shape->shared, .local_bytes = shape->local,
        .params = shape->params, .param_bytes = shape->param_bytes,
        .shared_base = shape->ranked ? 0x400 : 0, .ranked = shape->ranked,
    };
    assert_int_equal(vg_launch_begin(rig->memory, &launch, &rig->launch), OK);
    assert_int_equal(vg_mem_thread_begin(rig->launch, &rig->thread), OK);
    uint32_t per_cta = (shape->threads + 31) / 32;
    rig->n_teams = shape->n_ctas / launch.cluster_ctas;
    rig->warps_per_team = per_cta * launch.cluster_ctas;
    assert_true(rig->n_teams <= RIG_TEAMS && rig->warps_per_team <= 32);
    for (uint32_t t = 0; t < rig->n_teams; t++) {
        assert_int_equal(vg_team_create(rig->thread, &rig->team[t]), OK);
        vg_team_begin(rig->team[t], t);
        for (uint32_t w = 0; w < rig->warps_per_team; w++)
            vg_warp_begin(rig->team[t], &rig->warp[t][w], w / per_cta, w % per_cta);
    }
}

static void end_launch(Rig *rig) {
    vg_mem_thread_end(rig->thread);
    vg_launch_end(rig->launch);
}

void rig_begin(Rig *rig, const RigShape *shape) {
    memset(rig, 0, sizeof *rig);
    assert_int_equal(vg_memory_create(&shape->options, &rig->memory), OK);
    rig->frame = aligned_alloc(64, 64 * 256);
    assert_non_null(rig->frame);
    memset(rig->frame, 0, 64 * 256);
    begin_launch(rig, shape);
}

void rig_relaunch(Rig *rig, const RigShape *shape) {
    end_launch(rig);
    begin_launch(rig, shape);
}

void rig_end(Rig *rig) {
    end_launch(rig);
    vg_memory_destroy(rig->memory);
    free(rig->frame);
}

VgSite rig_site(VgAccess access, VgSpace space, uint32_t bytes, uint32_t vector) {
    VgSite site = { .id = next_site++ % 60000, .space = (uint8_t)space, .address_bytes = 8,
                    .access = (uint8_t)access, .bytes = (uint8_t)bytes, .vector = (uint8_t)vector,
                    .reg_bytes = (uint8_t)(bytes < 4 ? 4 : bytes), .scope = VG_SCOPE_GPU };
    for (uint32_t e = 0; e < 8; e++) {
        site.reg[e] = (RIG_DATA + e) * 256;
        site.source[e] = (RIG_DATA + e) * 256;
    }
    site.run = vg_access_select(&site);
    return site;
}

VgSite rig_strong(VgAccess access, VgSpace space, uint32_t bytes, VgSem sem, VgScope scope) {
    VgSite site = rig_site(access, space, bytes, 1);
    site.sem = (uint8_t)sem;
    site.scope = (uint8_t)scope;
    site.run = vg_access_select(&site);
    return site;
}

VgSite rig_atom(VgSpace space, VgAtomOp op, VgAtomType type, uint32_t bytes) {
    VgSite site = rig_site(VG_ATOMIC, space, bytes, 1);
    site.atom = (uint8_t)op;
    site.type = (uint8_t)type;
    site.sem = VG_RELAXED;
    site.result = true;
    for (uint32_t e = 0; e < 8; e++) site.reg[e] = (RIG_RESULT + e) * 256;
    site.compare = RIG_COMPARE * 256;
    return site;
}

uint32_t *rig_u32(Rig *rig, int reg) { return (uint32_t *)(rig->frame + reg * 256); }
uint64_t *rig_u64(Rig *rig, int reg) { return (uint64_t *)(rig->frame + reg * 256); }

VgFault rig_run_at(Rig *rig, VgWarpMem *warp, const VgSite *site, uint32_t mask) {
    return site->run(warp, site, mask, rig->frame + RIG_ADDRESS * 256, rig->frame);
}

VgFault rig_run(Rig *rig, VgWarpMem *warp, const VgSite *site, uint32_t mask, uint64_t address,
                int64_t step) {
    for (int l = 0; l < 32; l++) {
        if (site->address_bytes == 8)
            rig_u64(rig, RIG_ADDRESS)[l] = address + (uint64_t)(step * l);
        else
            rig_u32(rig, RIG_ADDRESS)[l] = (uint32_t)(address + (uint64_t)(step * l));
    }
    return rig_run_at(rig, warp, site, mask);
}

uint64_t rig_alloc(Rig *rig, size_t bytes, const char *what) {
    uint64_t address = 0;
    assert_int_equal(vg_mem_alloc(rig->memory, VG_GLOBAL, bytes, 0, what, &address), OK);
    return address;
}

const VgRecord *rig_record(Rig *rig) { return vg_mem_record(rig->thread); }

const char *rig_report(Rig *rig) {
    static Text text;
    text_finish(&text);
    text = (Text){ 0 };
    VgScene scene = { .kernel = "rig", .grid = { 4, 2, 1 }, .block = { 64, 1, 1 } };
    vg_report_text(&text, rig_record(rig), &scene);
    return text_cstr(&text);
}
