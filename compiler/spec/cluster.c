// SPDX-License-Identifier: Apache-2.0
// Reads what a file or a name says of a cluster: m.cluster { ... }, with its blocks device, link, products,
// curve and figure, into a CostCluster.
#include <math.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

static const char *const evidence_words[N_EVIDENCES] = {
#define X(name, text) #name,
    COST_EVIDENCES(X)
#undef X
};

static _Noreturn void bad(Spec *S, Place place, const char *field, const char *what) {
    Fault fault = { .at = place, .word = field, .field = true, .plain = true };
    fault_raise(S, &fault, "%s must be %s", field, what);
}

static uint8_t evidence_of(lua_State *L, int block) {
    block_field(L, block, "evidence");
    const char *word = lua_tostring(L, -1);
    uint8_t i = 0;
    while (i < N_EVIDENCES - 1 && strcmp(evidence_words[i], word)) i++;
    lua_pop(L, 1);
    return i;
}

// Of rates a second: slower is a mistake in the unit (450 for 450 GB/s), and times of it are no numbers in the end.
#define SLOWEST 99999

// A field that is a number or a figure; `missing` where it is false. Checked to be above `least`.
static double number(Spec *S, int block, const char *field, double missing, double least, uint8_t *evidence) {
    lua_State *L = S->L;
    Place place = is_block(L, block)->place;
    block_field(L, block, field);
    double value = missing;
    bool given = lua_toboolean(L, -1);
    if (evidence) *evidence = EVIDENCE_specification;
    if (is_block(L, -1)) {
        if (evidence) *evidence = evidence_of(L, lua_gettop(L));
        block_field(L, lua_gettop(L), "value");
        value = lua_tonumber(L, -1);
        lua_pop(L, 1);
    } else if (lua_type(L, -1) == LUA_TNUMBER) {
        value = lua_tonumber(L, -1);
    }
    if (given && !(value > least))
        bad(S, place, field, least < 0 ? "0 or more" : value > 0 ? "100000 a second or more: 450 GB/s are 450e9" : "above 0");
    lua_pop(L, 1);
    return value;
}

static const char *string(Spec *S, Arena *arena, int block, const char *field) {
    block_field(S->L, block, field);
    const char *text = arena_strdup(arena, lua_tostring(S->L, -1));
    lua_pop(S->L, 1);
    return text;
}

static int32_t size(Spec *S, int block, const char *field) {
    block_field(S->L, block, field);
    int32_t n = (int32_t)lua_tointeger(S->L, -1);
    lua_pop(S->L, 1);
    return n;
}

// Entry i of the table on top, as a number.
static double entry(lua_State *L, lua_Integer i) {
    lua_geti(L, -1, i);
    double x = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : NAN;
    lua_pop(L, 1);
    return x;
}

// The curve on top of the stack, popped.
static void read_curve(Spec *S, Place at, const char *field, CostCurve *out) {
    lua_State *L = S->L;
    int block = lua_gettop(L);
    const Block *b = is_block(L, block);
    if (!b || strcmp(b->define->name, "curve")) bad(S, at, field, "made of m.curve { ... }");
    out->ranks = size(S, block, "ranks");
    out->evidence = evidence_of(L, block);
    block_field(L, block, "points");
    lua_Integer n = luaL_len(L, -1);
    if (n < 1 || n > COST_MOST_POINTS) bad(S, b->place, "points", "a list of 1 to 24 pairs");
    for (lua_Integer i = 1; i <= n; i++) {
        bool pair = lua_geti(L, -1, i) == LUA_TTABLE;
        double x = pair ? entry(L, 1) : NAN, y = pair ? entry(L, 2) : NAN;
        lua_pop(L, 1);
        if (!(x > 0 && y > 0) || (i > 1 && x <= out->x[i - 2]))
            bad(S, b->place, "points", "pairs { x, y } of numbers above 0, x ascending");
        out->x[i - 1] = x, out->y[i - 1] = y;
    }
    out->n = (int32_t)n;
    lua_settop(L, block - 1);
}

static void read_products(Spec *S, int device, const char *field, CostMatmul *out) {
    lua_State *L = S->L;
    *out = (CostMatmul){ .evidence = EVIDENCE_specification };
    block_field(L, device, field);
    int block = lua_gettop(L);
    const Block *b = is_block(L, block);
    if (!b || strcmp(b->define->name, "products")) {
        lua_pop(L, 1);
        out->flop_per_s = number(S, device, field, 0, SLOWEST, &out->evidence);
        out->reach = 0.75, out->depth_k = 128, out->tile_m = 256, out->tile_n = 128; // as m.products has them
        out->experts = 0.95, out->experts_depth_k = 512, out->wgrad = 1;
        return;
    }
    out->flop_per_s = number(S, block, "peak", 0, SLOWEST, NULL);
    out->reach = number(S, block, "reach", 0, 0, NULL);
    if (out->reach > 1) bad(S, b->place, "reach", "at most 1");
    out->depth_k = number(S, block, "depth", 0, -1e-9, NULL);
    out->edge = number(S, block, "edge", 0, -1e-9, NULL);
    out->experts = number(S, block, "experts", 0, 0, NULL);
    out->experts_depth_k = number(S, block, "experts_depth", 0, -1e-9, NULL);
    out->wgrad = number(S, block, "wgrad", 0, 0, NULL);
    if (out->wgrad > 1) bad(S, b->place, "wgrad", "at most 1");
    out->quantise_bytes = number(S, block, "quantise_bytes", 0, -1e-9, NULL);
    out->quantise_s = number(S, block, "quantise_launch", 0, -1e-9, NULL);
    out->evidence = evidence_of(L, block);
    block_field(L, block, "tile");
    double m = entry(L, 1), n = entry(L, 2);
    if (luaL_len(L, -1) != 2 || !(m >= 1 && m <= 65536 && n >= 1 && n <= 65536))
        bad(S, b->place, "tile", "two numbers from 1: rows, columns");
    out->tile_m = (int32_t)m, out->tile_n = (int32_t)n;
    lua_settop(L, block - 1);
}

static void read_device(Spec *S, Arena *arena, int block, CostDevice *out) {
    lua_State *L = S->L;
    out->name = string(S, arena, block, "name");
    out->arch = string(S, arena, block, "arch");
    out->units = size(S, block, "units");
    out->memory_bytes = (int64_t)number(S, block, "memory", 0, 0, NULL);
    out->reserved_bytes = (int64_t)number(S, block, "reserved", 0, -1, NULL);
    out->bytes_per_s = number(S, block, "bandwidth", 0, SLOWEST, &out->evidence[0]);
    out->sustained = number(S, block, "sustained", 1, 0, NULL);
    if (out->sustained > 1) bad(S, is_block(L, block)->place, "sustained", "at most 1");
    out->overlap = number(S, block, "overlap", 0, -1e-9, NULL);
    if (out->overlap > 1) bad(S, is_block(L, block)->place, "overlap", "at most 1");
    out->launch_s = number(S, block, "launch", 0, -1e-9, &out->evidence[1]);
    out->row_flop_per_s = number(S, block, "row_rate", 0, SLOWEST, NULL);
    out->stream = number(S, block, "stream", 0, 0, &out->evidence[2]);
    out->move = number(S, block, "move", 0, 0, NULL);
    out->adam = number(S, block, "adam", 0, 0, NULL);
    out->sharing = number(S, block, "sharing", 1, 0, NULL);
    if (out->sharing < 1) bad(S, is_block(L, block)->place, "sharing", "1 or more");
    out->contention = number(S, block, "contention", 1, 0, &out->evidence[3]);
    read_products(S, block, "bf16", &out->matmul[PRECISION_BF16]);
    read_products(S, block, "mxfp8", &out->matmul[PRECISION_MXFP8]);
    read_products(S, block, "fp32", &out->matmul[PRECISION_FP32]);
    block_field(L, block, "cached");
    if (lua_toboolean(L, -1)) read_curve(S, is_block(L, block)->place, "cached", &out->cached);
    else lua_pop(L, 1);
    static const char *const attention[2] = { "attention", "attention_back" };
    for (int i = 0; i < 2; i++) {
        block_field(L, block, attention[i]);
        if (lua_toboolean(L, -1)) read_curve(S, is_block(L, block)->place, attention[i], &out->attention[i]);
        else lua_pop(L, 1);
    }
    if (!out->attention[1].n) out->attention[1] = out->attention[0];
    out->attention_narrow = number(S, block, "attention_narrow", 0, -1, NULL);
    out->attention_block = number(S, block, "attention_block", 0, -1, NULL);
}

static void read_curves(Spec *S, int block, CostCollective what, CostLink *out) {
    lua_State *L = S->L;
    const char *field = cost_collective_name[what];
    Place place = is_block(L, block)->place;
    block_field(L, block, field);
    lua_Integer n = luaL_len(L, -1);
    if (n > COST_MOST_SIZES) bad(S, place, field, "at most 4 curves");
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        read_curve(S, place, field, &out->curves[what][i - 1]);
        if (i > 1 && out->curves[what][i - 1].ranks <= out->curves[what][i - 2].ranks)
            bad(S, place, field, "curves of ascending ranks");
    }
    out->n_curves[what] = (int32_t)n;
    lua_pop(L, 1);
}

static void read_link(Spec *S, Arena *arena, int block, CostLink *out) {
    out->name = string(S, arena, block, "name");
    out->size = size(S, block, "size");
    out->bytes_per_s = number(S, block, "rate", 0, SLOWEST, &out->evidence);
    out->latency_s = number(S, block, "latency", 0, -1e-9, NULL);
    out->share = number(S, block, "share", 0, 0, NULL);
    out->row_fixed_s = number(S, block, "row_fixed", 0, -1e-9, NULL);
    out->row_bytes_per_s[0] = number(S, block, "rows_out", 0, SLOWEST, &out->row_evidence);
    out->row_bytes_per_s[1] = number(S, block, "rows_back", 0, SLOWEST, NULL);
    out->block_bytes_per_s[0] = number(S, block, "blocks_out", 0, SLOWEST, NULL);
    out->block_bytes_per_s[1] = number(S, block, "blocks_back", 0, SLOWEST, NULL);
    for (CostCollective what = 0; what < N_COLLECTIVES; what++) read_curves(S, block, what, out);
}

void cluster_read(Spec *S, Arena *arena, CostCluster *out) {
    lua_State *L = S->L;
    int block = lua_gettop(L);
    Place place = is_block(L, block)->place;
    *out = (CostCluster){ .name = string(S, arena, block, "name") };
    block_field(L, block, "device");
    const Block *device = is_block(L, -1);
    if (!device || strcmp(device->define->name, "device")) bad(S, place, "device", "a device: m.device { ... }");
    read_device(S, arena, lua_gettop(L), &out->device);
    lua_pop(L, 1);
    block_field(L, block, "links");
    lua_Integer n = luaL_len(L, -1);
    if (n < 1 || n > COST_MOST_LINKS) bad(S, place, "links", "a list of 1 to 4 of m.link, innermost first");
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        const Block *link = is_block(L, -1);
        if (!link || strcmp(link->define->name, "link")) bad(S, place, "links", "a list of m.link { ... }");
        read_link(S, arena, lua_gettop(L), &out->links[i - 1]);
        lua_pop(L, 1);
    }
    out->n_links = (int32_t)n;
    lua_pop(L, 1);
    if (cost_cluster_devices(out) > LAYOUT_MOST_RANKS) bad(S, place, "links", "of at most 1048576 devices together");
}
