// SPDX-License-Identifier: Apache-2.0
// The Lua form of a layout: what a file that returns m.layout { ... } says, for one model. Fields that the
// short form has too become its text and go the same way (layout_set), so that bounds and messages are
// the same; mesh, placement and precision are read here.
#include <stdio.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

/* Fields of the short form --------------------------------------------------------------------- */

// Raises this thread's last failure, cut at its hint, without "layout: ", which the place says.
static _Noreturn void raise_status(Spec *S, Fault fault) {
    const char *message = status_message(), *hint = strstr(message, "\n  hint: ");
    size_t n = hint ? (size_t)(hint - message) : strlen(message);
    lua_pushlstring(S->L, message, n);
    if (hint) fault.hint = fault_hint(S, "%s", hint + strlen("\n  hint: "));
    fault_raise(S, &fault, "%s", lua_tostring(S->L, -1));
}

static void set_field(Spec *S, const LayoutJob *job, Fault fault, LayoutField field,
                      const char *text, uint32_t *given) {
    *given |= 1u << field;
    if (layout_set(job->layout, job->arena, field, text) != OK) raise_status(S, fault);
}

// The number on top as the short form writes it.
static void add_number(lua_State *L, Text *out) {
    int whole;
    lua_Integer n = lua_tointegerx(L, -1, &whole);
    if (whole) text_printf(out, "%lld", (long long)n);
    else text_add_decimal(out, lua_tonumber(L, -1));
}

// The value on top, of a kind that its row takes, pushed as text: a list has ':' between.
static void push_text(Spec *S, Fault fault) {
    lua_State *L = S->L;
    Text text = { 0 };
    bool list = lua_istable(L, -1), fits = true;
    lua_Integer n = list ? luaL_len(L, -1) : 1;
    sandbox_charge(S, n);
    for (lua_Integer i = 1; i <= n && fits; i++) {
        if (list) lua_geti(L, -1, i);
        if (i > 1) text_add(&text, ":");
        if (lua_type(L, -1) == LUA_TNUMBER) add_number(L, &text);
        else if (lua_type(L, -1) == LUA_TSTRING) text_add(&text, lua_tostring(L, -1));
        else fits = false;
        if (list) lua_pop(L, 1);
    }
    lua_pushlstring(L, text_cstr(&text), text.bytes);
    text_finish(&text);
    if (fits && n > 0) return;
    fault_raise(S, &fault, "layout: %s must be a list of %s", fault.word,
                !strcmp(fault.word, "stages") ? "numbers" : "words, one per layer");
}

// Whether the field is one of m.layout's own; the axes are in `mesh`.
static bool is_axis(LayoutField field) {
    return field == LAYOUT_pp || field == LAYOUT_dp || field == LAYOUT_ep;
}

static uint32_t read_fields(Spec *S, const LayoutJob *job, int block) {
    lua_State *L = S->L;
    Place place = is_block(L, block)->place;
    uint32_t given = 0;
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS; field++) {
        if (is_axis(field)) continue;
        block_field(L, block, layout_field_name[field]);
        if (lua_toboolean(L, -1)) {
            Fault fault = {
                .at = place, .word = layout_field_name[field], .field = true, .plain = true
            };
            push_text(S, fault);
            set_field(S, job, fault, field, lua_tostring(L, -1), &given);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    return given;
}

/* mesh ----------------------------------------------------------------------------------------- */

static _Noreturn void bad_axis(Spec *S, Fault fault, const char *text) {
    fault.hint = "axes, outermost first: \"pp=2\", \"dp=8\", \"ep=4\"";
    fault_raise(S, &fault, "layout: mesh has no axis '%s'", text);
}

// One of "pp=2"; axes come in the order of the table.
static LayoutField read_axis(Spec *S, const LayoutJob *job, Place place, int before,
                             uint32_t *given) {
    lua_State *L = S->L;
    const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : describe(L, -1);
    Fault fault = { .at = place, .word = text, .plain = true };
    const char *equals = strchr(text, '=');
    for (LayoutField field = 0; field < N_LAYOUT_FIELDS && equals; field++) {
        const char *name = layout_field_name[field];
        if (!is_axis(field) || strlen(name) != (size_t)(equals - text) ||
            strncmp(name, text, strlen(name)))
            continue;
        if ((int)field <= before) {
            fault.hint = "axes, outermost first: \"pp=2\", \"dp=8\", \"ep=4\"";
            fault_raise(S, &fault, "layout: mesh has '%s' after '%s'", name,
                        layout_field_name[before]);
        }
        set_field(S, job, fault, field, equals + 1, given);
        return field;
    }
    bad_axis(S, fault, text);
}

static void read_mesh(Spec *S, const LayoutJob *job, int block, uint32_t *given) {
    lua_State *L = S->L;
    block_field(L, block, "mesh");
    lua_Integer n = luaL_len(L, -1);
    int before = -1;
    for (lua_Integer i = 1; i <= n; i++) {
        lua_geti(L, -1, i);
        before = (int)read_axis(S, job, is_block(L, block)->place, before, given);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* placement ------------------------------------------------------------------------------------ */

// Asks for the rank of one expert; both numbers as a spec counts, layers from 1, experts from 0.
static int32_t ask_placement(Spec *S, Place place, int32_t ep, int32_t layer, int32_t expert) {
    lua_State *L = S->L;
    lua_pushvalue(L, -1);
    lua_pushinteger(L, layer);
    lua_pushinteger(L, expert);
    lua_call(L, 2, 1);
    int whole;
    lua_Integer rank = lua_tointegerx(L, -1, &whole);
    if (lua_type(L, -1) != LUA_TNUMBER || !whole || rank < 0 || rank >= ep) {
        Fault fault = { .at = place, .word = "placement", .field = true, .plain = true,
                        .hint = "placement: (layer, expert) to the rank on the ep axis" };
        fault_raise(S, &fault,
                    "layout: placement(%d, %d) must be a rank from 0 to ep - 1 = %d, got %s", layer,
                    expert, ep - 1, describe(L, -1));
    }
    lua_pop(L, 1);
    return (int32_t)rank;
}

static void read_placement(Spec *S, const LayoutJob *job, int block) {
    lua_State *L = S->L;
    Layout *layout = job->layout;
    block_field(L, block, "placement");
    const Model *m = S->m;
    int32_t *experts = ARENA_ARRAY(S->arena, int32_t, m->n_layers + 1), most = 0;
    layout_experts(m, experts);
    for (int32_t i = 0; i < m->n_layers; i++) most = experts[i] > most ? experts[i] : most;
    if (lua_toboolean(L, -1) && most) {
        layout->experts = most;
        layout->placement = ARENA_ARRAY(job->arena, int32_t, (int64_t)m->n_layers * most);
        for (int32_t i = 0; i < m->n_layers; i++) {
            sandbox_charge(S, most);
            for (int32_t e = 0; e < most; e++)
                layout->placement[(int64_t)i * most + e] =
                    e < experts[i] ? ask_placement(S, is_block(L, block)->place, layout->ep, i + 1, e)
                                   : -1;
        }
    }
    lua_pop(L, 1);
}

/* precision ------------------------------------------------------------------------------------ */

// { globs, precision }
typedef struct PrecisionRule {
    const char *pattern;
    uint8_t precision;
    Place place;
    const bool *by_layout; // parameters that an earlier rule of this list has set
} PrecisionRule;

static const char *precision_word(uint8_t precision) {
    return rules_precisions[precision - PRECISION_FP32];
}

static _Noreturn void contradicts(Spec *S, const PrecisionRule *rule, const Param *p) {
    const char *path = S->m->files[p->precision_loc.file - 1].path;
    const char *line = S->m->files[p->precision_loc.file - 1].text;
    for (uint32_t i = 1; i < p->precision_loc.line; i++) line += strcspn(line, "\n") + 1;
    line += strspn(line, " \t");
    const char *note = lua_pushfstring(
        S->L, "the spec says %s at %s:%d:  %s", precision_word(p->precision), path,
        (int)p->precision_loc.line, lua_pushlstring(S->L, line, strcspn(line, "\r\n")));
    Fault fault = { .at = rule->place, .word = rule->pattern, .plain = true, .note = note,
                    .hint = "leave the weight out of the layout's rule, or the spec's open" };
    fault_raise(S, &fault, "layout.precision: '%s' makes %s %s, against the spec", rule->pattern,
                model_name(S->m, p->addr), precision_word(rule->precision));
}

// What the spec left open; what a built-in block states (the router is fp32) is final and passed by, as
// the spec's own rules pass it by.
static void apply_precision(Spec *S, const void *user, uint32_t i) {
    const PrecisionRule *rule = user;
    Param *p = &S->m->params[i];
    if (!p->is_weight) return;
    if (!rule->by_layout[i] && p->precision != PRECISION_OPEN) {
        if (p->precision_loc.line && p->precision != rule->precision) contradicts(S, rule, p);
        return;
    }
    p->precision = rule->precision;
    ((bool *)(uintptr_t)rule->by_layout)[i] = true;
}

static void read_rule(Spec *S, Place place, lua_Integer number, PrecisionRule *rule) {
    lua_State *L = S->L;
    int table = lua_gettop(L);
    Fault fault = { .at = place, .word = "precision", .field = true, .plain = true,
                    .hint = "{ \"*.experts.*\", \"bf16\" }" };
    if (!lua_istable(L, table) || luaL_len(L, table) != 2 || lua_geti(L, table, 1) != LUA_TSTRING)
        fault_raise(S, &fault, "layout.precision: rule %lld must be { addresses, precision }",
                    (long long)number);
    rule->pattern = lua_tostring(L, -1);
    lua_geti(L, table, 2);
    rule->precision = rules_precision(L);
    if (rule->precision) return;
    fault_raise(S, &(Fault){ .at = place, .word = rule->pattern, .plain = true },
                "layout.precision: that of '%s' must be \"fp32\", \"bf16\" or \"mxfp8\", got %s",
                rule->pattern, describe(L, -1));
}

static void read_precision(Spec *S, const LayoutJob *job, int block) {
    lua_State *L = S->L;
    Layout *layout = job->layout;
    Place place = is_block(L, block)->place;
    PrecisionRule rule = { .place = place,
                           .by_layout = ARENA_ARRAY(S->arena, bool, S->m->n_params + 1) };
    block_field(L, block, "precision");
    lua_Integer n = luaL_len(L, -1);
    layout->precision = ARENA_ARRAY(job->arena, LayoutPrecision, n + 1);
    layout->n_precision = 0;
    for (lua_Integer i = 1; i <= n; i++) {
        int top = lua_gettop(L);
        lua_geti(L, -1, i);
        read_rule(S, place, i, &rule);
        layout->precision[layout->n_precision++] =
            (LayoutPrecision){ arena_strdup(job->arena, rule.pattern), rule.precision };
        rules_match(S, rule.pattern, place, "layout.precision", apply_precision, &rule);
        lua_settop(L, top);
    }
    lua_pop(L, 1);
}

void layout_read(Spec *S, const LayoutJob *job) {
    int block = lua_gettop(S->L);
    uint32_t given = 0;
    read_mesh(S, job, block, &given);
    given |= read_fields(S, job, block);
    layout_settle(job->layout, given);
    read_placement(S, job, block);
    read_precision(S, job, block);
}
