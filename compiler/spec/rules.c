// SPDX-License-Identifier: Apache-2.0
// m.model's `parameters`: rules that fill what the makers of parameters left open. A rule is a list
// of globs over addresses and what to set; later rules win; a glob that matches nothing is an
// error. What a maker stated (a gain's ones, the router's fp32) is final.
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

typedef struct Rule {
    const char *pattern; // of this glob, for messages
    bool has_init, has_decay, has_lr;
    uint8_t init, precision;
    double std, decay, lr;
    Loc loc;
} Rule;

// '*' stands for any characters, dots too.
bool glob_matches(const char *glob, const char *text, int64_t *steps) {
    const char *star = NULL, *from = NULL;
    while (*text) {
        ++*steps;
        if (*glob == '*') {
            star = glob++;
            from = text;
        } else if (*glob == *text) {
            glob++;
            text++;
        } else if (star) {
            glob = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return !*glob;
}

/* Reading a rule ------------------------------------------------------------------------------ */

static _Noreturn void bad_value(Spec *S, Place place, const char *pattern, const char *key,
                                const char *want) {
    fault_raise(S, &(Fault){ .at = place, .word = pattern, .plain = true },
                "parameters: %s of '%s' must be %s, got %s", key, pattern, want,
                describe(S->L, -1));
}

static double need_multiplier(Spec *S, Place place, const char *pattern, const char *key) {
    double x = lua_type(S->L, -1) == LUA_TNUMBER ? lua_tonumber(S->L, -1) : -1;
    if (!(x >= 0 && x <= FLT_MAX)) bad_value(S, place, pattern, key, "a finite number >= 0");
    return x;
}

static void read_init(Spec *S, Place place, Rule *rule) {
    const char *word = lua_type(S->L, -1) == LUA_TSTRING ? lua_tostring(S->L, -1) : NULL;
    rule->has_init = true;
    if (word && !strcmp(word, "zeros"))
        rule->init = INIT_ZEROS;
    else if (word && !strcmp(word, "ones"))
        rule->init = INIT_ONES;
    else if (lua_type(S->L, -1) == LUA_TNUMBER)
        rule->std = need_multiplier(S, place, rule->pattern, "init");
    else
        bad_value(S, place, rule->pattern, "init", "a number >= 0, \"zeros\" or \"ones\"");
}

const char *const rules_precisions[] = { "fp32", "bf16", "mxfp8" };

uint8_t rules_precision(lua_State *L) {
    for (int i = 0; i < 3; i++) {
        if (lua_type(L, -1) == LUA_TSTRING && !strcmp(lua_tostring(L, -1), rules_precisions[i]))
            return (uint8_t)(PRECISION_FP32 + i);
    }
    return PRECISION_OPEN;
}

static void read_precision(Spec *S, Place place, Rule *rule) {
    rule->precision = rules_precision(S->L);
    if (!rule->precision)
        bad_value(S, place, rule->pattern, "precision", "\"fp32\", \"bf16\" or \"mxfp8\"");
}

// The rule in the table on top.
static Rule read_rule(Spec *S, Place place, lua_Integer number) {
    lua_State *L = S->L;
    int table = lua_gettop(L);
    Fault fault = { .at = place, .plain = true, .hint = "{ \"*.w_out\", init = 0.01 }" };
    if (!lua_istable(L, table) || lua_geti(L, table, 1) != LUA_TSTRING)
        fault_raise(S, &fault, "parameters: rule %lld must begin with a pattern of addresses",
                    number);
    Rule rule = { .pattern = lua_tostring(L, -1) };
    int n = 0;
    for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : NULL;
        if (!key && lua_isinteger(L, -2) && lua_tointeger(L, -2) == 1) continue;
        n++;
        if (key && !strcmp(key, "init")) {
            read_init(S, place, &rule);
        } else if (key && !strcmp(key, "decay")) {
            rule.has_decay = true;
            rule.decay = need_multiplier(S, place, rule.pattern, "decay");
        } else if (key && !strcmp(key, "lr")) {
            rule.has_lr = true;
            rule.lr = need_multiplier(S, place, rule.pattern, "lr");
        } else if (key && !strcmp(key, "precision")) {
            read_precision(S, place, &rule);
        } else {
            fault.word = rule.pattern;
            fault.hint = "a rule sets init, decay, lr or precision";
            fault_raise(S, &fault, "parameters: the rule of '%s' has no field %s", rule.pattern,
                        key ? lua_pushfstring(L, "'%s'", key) : describe(L, -2));
        }
    }
    fault.word = rule.pattern;
    fault.hint = "a rule sets init, decay, lr or precision";
    if (!n) fault_raise(S, &fault, "parameters: the rule of '%s' sets nothing", rule.pattern);
    return rule;
}

/* Applying ------------------------------------------------------------------------------------ */

static void apply_rule(Spec *S, const void *user, uint32_t i) {
    const Rule *rule = user;
    Param *p = &S->m->params[i];
    if (rule->has_init && !p->init_final) {
        p->init = rule->init;
        p->std = rule->std;
    }
    if (rule->has_decay) p->decay = rule->decay;
    if (rule->has_lr) p->lr = rule->lr;
    if (rule->precision && p->is_weight && !S->origins[i].precision_final) {
        p->precision = rule->precision;
        p->precision_loc = rule->loc;
    }
}

// The last `parts` parts of an address.
static const char *ending(const char *address, int parts) {
    const char *at = address + strlen(address);
    while (at > address && (at[-1] != '.' || --parts > 0)) at--;
    return at;
}

static _Noreturn void matches_nothing(Spec *S, Place place, const char *who, const char *glob) {
    const char *tail = glob, *star = strrchr(glob, '*');
    if (star) tail = star[1] == '.' ? star + 2 : star + 1;
    int parts = 1, n = 0;
    for (const char *s = tail; *s; s++) parts += *s == '.';
    const char **words = lua_newuserdatauv(S->L, sizeof *words * (S->m->n_params + 1), 0);
    for (uint32_t i = 0; i < S->m->n_params; i++) {
        const char *address = model_name(S->m, S->m->params[i].addr);
        if (!S->m->params[i].is_state) words[n++] = star ? ending(address, parts) : address;
    }
    const char *near = *tail ? spec_nearest(tail, words, n) : NULL;
    Fault fault = {
        .at = place, .word = glob, .plain = true, .hint = "moec check -v lists the addresses"
    };
    if (near) fault.hint = fault_hint(S, "did you mean '%.*s%s'?", (int)(tail - glob), glob, near);
    fault_raise(S, &fault, "%s: '%s' matches no parameter", who, glob);
}

void rules_match(Spec *S, const char *pattern, Place place, const char *who,
                 void (*found)(Spec *S, const void *rule, uint32_t param), const void *rule) {
    static const char gaps[] = ", \t\n";
    if (!pattern[strspn(pattern, gaps)]) matches_nothing(S, place, who, pattern);
    for (const char *s = pattern; *s;) {
        s += strspn(s, gaps);
        size_t n = strcspn(s, gaps);
        if (!n) break;
        const char *glob = lua_pushlstring(S->L, s, n);
        bool any = false;
        for (uint32_t i = 0; i < S->m->n_params; i++) {
            int64_t steps = 0;
            bool match = glob_matches(glob, model_name(S->m, S->m->params[i].addr), &steps);
            sandbox_charge(S, 1 + steps / 64);
            if (S->m->params[i].is_state || !match) continue;
            found(S, rule, i);
            any = true;
        }
        if (!any) matches_nothing(S, place, who, glob);
        lua_pop(S->L, 1);
        s += n;
    }
}

void rules_apply(Spec *S, int block) {
    lua_State *L = S->L;
    Place place = is_block(L, block)->place;
    for (uint32_t i = 0; i < S->m->n_params; i++) S->m->params[i].decay = NAN;
    block_field(L, block, "parameters");
    lua_Integer n = luaL_len(L, -1);
    for (lua_Integer i = 1; i <= n; i++) {
        int top = lua_gettop(L);
        lua_geti(L, -1, i);
        Rule rule = read_rule(S, place, i);
        if (rule.precision) rule.loc = place_of_word(S, place, rule.pattern);
        rules_match(S, rule.pattern, place, "parameters", apply_rule, &rule);
        lua_settop(L, top);
    }
    lua_pop(L, 1);
    for (uint32_t i = 0; i < S->m->n_params; i++) {
        Param *p = &S->m->params[i];
        if (isnan(p->decay)) p->decay = p->is_weight && !p->is_state;
    }
}
