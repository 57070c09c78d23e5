// SPDX-License-Identifier: Apache-2.0
// Lanes, one after the other, each as far as it gets; and what they do together.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/vgpu/ref.h"

#define IN_BASE (1ull << 40)
#define OUT_BASE (2ull << 40)

typedef struct Lane {
    uint64_t reg[REF_REGISTERS];
    int pc, steps;
    bool carry, done, waits;
    uint32_t mask;           // of the .sync it waits at
} Lane;

typedef struct Run {
    const RefProgram *program;
    Lane *lane;
    int threads, in_words, out_words;
    const uint32_t *in;
    uint32_t *out;
    char *error;
} Run;

static bool fail(Run *run, const char *what, const RefInstr *i) {
    snprintf(run->error, 256, "%s: %.120s", what, i ? i->text : "");
    return false;
}

static bool is(const RefInstr *i, const char *root) {
    return !strcmp(i->word[0], root);
}

/* Operands ------------------------------------------------------------------------------------- */

static uint64_t value_of(const Run *run, int lane, const RefOperand *o) {
    const Lane *l = &run->lane[lane];
    if (o->kind == REF_IMMEDIATE) return o->value;
    const char *name = run->program->names[o->reg];
    if (o->kind == REF_PAIR) return (l->reg[o->reg] & 0xffffffff) | l->reg[o->second] << 32;
    if (!strcmp(name, "%tid.x")) return (uint64_t)lane;
    if (!strcmp(name, "%ntid.x")) return (uint64_t)run->threads;
    return o->negated ? !l->reg[o->reg] : l->reg[o->reg];
}

// Registers hold their own width: by the first letters of their names.
static void set(Run *run, int lane, int reg, uint64_t value) {
    const char *name = run->program->names[reg];
    if (name[1] == 'p') value &= 1;
    else if (name[1] == 'h') value &= 0xffff;
    else if (name[1] == 'f' || (name[1] == 'r' && name[2] != 'd')) value &= 0xffffffff;
    run->lane[lane].reg[reg] = value;
}

/* Memory --------------------------------------------------------------------------------------- */

static bool memory(Run *run, int lane, const RefInstr *i) {
    bool load = is(i, "ld");
    const RefOperand *at = &i->operand[load ? 1 : 0], *data = &i->operand[load ? 0 : 1];
    if (ref_has(i, "param")) {
        set(run, lane, data->reg, !strcmp(at->label, "in") ? IN_BASE : OUT_BASE);
        return true;
    }
    uint64_t address = value_of(run, lane, at) + at->value;
    uint64_t word = (address & (IN_BASE - 1)) / 4;
    bool input = address >> 40 == 1;
    uint64_t words = (uint64_t)run->threads * (uint64_t)(input ? run->in_words : run->out_words);
    if (word >= words || address % 4 || load != input) return fail(run, "address", i);
    if (load) set(run, lane, data->reg, run->in[word]);
    else run->out[word] = (uint32_t)value_of(run, lane, data);
    return true;
}

/* One lane ------------------------------------------------------------------------------------- */

static bool move(Run *run, int lane, const RefInstr *i) {
    uint64_t value = value_of(run, lane, &i->operand[1]);
    const RefOperand *to = &i->operand[0];
    if (to->kind == REF_PAIR) {
        set(run, lane, to->reg, value & 0xffffffff);
        set(run, lane, to->second, value >> 32);
    } else {
        set(run, lane, to->reg, value);
    }
    return true;
}

static bool compute(Run *run, int lane, const RefInstr *i) {
    uint64_t a[4] = { 0 }, d[2] = { 0 };
    for (int k = 1; k < i->n_operands && k <= 4; k++)
        a[k - 1] = value_of(run, lane, &i->operand[k]);
    if (!ref_cvt(i, a, d) && !ref_int(i, a, d, &run->lane[lane].carry) && !ref_float(i, a, d))
        return fail(run, "not known", i);
    set(run, lane, i->operand[0].reg, d[0]);
    if (i->operand[0].second >= 0) set(run, lane, i->operand[0].second, d[1]);
    return true;
}

// Until it waits or is done.
static bool run_lane(Run *run, int lane) {
    Lane *l = &run->lane[lane];
    while (!l->done && !l->waits) {
        if (l->pc >= run->program->n) return fail(run, "ran off the end", NULL);
        if (++l->steps > 2000000) return fail(run, "does not end", NULL);
        const RefInstr *i = &run->program->instr[l->pc];
        if (i->guard >= 0 && (bool)l->reg[i->guard] == i->guard_negated) {
            l->pc++;
            continue;
        }
        bool ok = true;
        if (is(i, "bra")) {
            l->pc = i->target;
            continue;
        }
        if (is(i, "ret") || is(i, "exit")) {
            l->done = true;
        } else if (ref_has(i, "sync")) {
            l->waits = true;
            l->mask = (uint32_t)value_of(run, lane, &i->operand[i->n_operands - 1]);
            continue;
        } else if (is(i, "ld") || is(i, "st")) {
            ok = memory(run, lane, i);
        } else if (is(i, "mov")) {
            ok = move(run, lane, i);
        } else {
            ok = compute(run, lane, i);
        }
        if (!ok) return false;
        l->pc++;
    }
    return true;
}

/* Together ------------------------------------------------------------------------------------- */

static bool shuffle(Run *run, int first, uint32_t mask, const RefInstr *i) {
    uint64_t results[32];
    bool inside[32];
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        int b = (int)(value_of(run, first + lane, &i->operand[2]) & 31);
        int c = (int)value_of(run, first + lane, &i->operand[3]);
        int segment = c >> 8 & 31, clamp = c & 31;
        int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        int from = ref_has(i, "up")     ? lane - b
                   : ref_has(i, "down") ? lane + b
                   : ref_has(i, "bfly") ? lane ^ b
                                        : least | (b & ~segment);
        inside[lane] = ref_has(i, "up") ? from >= most : from <= most;
        if (!inside[lane]) from = lane;
        if (!(mask >> from & 1)) return fail(run, "reads a lane that is not there", i);
        results[lane] = value_of(run, first + from, &i->operand[1]);
    }
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        set(run, first + lane, i->operand[0].reg, results[lane]);
        if (i->operand[0].second >= 0) set(run, first + lane, i->operand[0].second, inside[lane]);
    }
    return true;
}

static uint64_t reduce(const RefInstr *i, uint64_t all, uint64_t one) {
    bool is_signed = ref_has(i, "s32");
    bool less = is_signed ? (int32_t)one < (int32_t)all : (uint32_t)one < (uint32_t)all;
    if (ref_has(i, "add")) return (uint32_t)(all + one);
    if (ref_has(i, "min")) return less ? one : all;
    if (ref_has(i, "max")) return less ? all : one;
    if (ref_has(i, "and")) return all & one;
    return ref_has(i, "or") ? all | one : all ^ one;
}

static bool together(Run *run, int first, uint32_t mask, const RefInstr *i) {
    if (is(i, "shfl")) return shuffle(run, first, mask, i);
    if (is(i, "bar")) return true;
    uint64_t value[32];
    uint32_t yes = 0;
    uint64_t total = 0;
    bool start = true;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        value[lane] = value_of(run, first + lane, &i->operand[1]);
        if (value[lane] & 1) yes |= 1u << lane;
        total = start ? value[lane] : reduce(i, total, value[lane]);
        start = false;
    }
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        uint32_t same = 0;
        for (int other = 0; other < 32; other++)
            if ((mask >> other & 1) && value[other] == value[lane]) same |= 1u << other;
        uint64_t d = 0;
        bool p = false;
        if (is(i, "redux")) d = total;
        else if (ref_has(i, "ballot")) d = yes;
        else if (is(i, "vote") && ref_has(i, "all")) d = yes == mask;
        else if (is(i, "vote") && ref_has(i, "any")) d = yes != 0;
        else if (is(i, "vote")) d = yes == mask || !yes; // uni
        else if (ref_has(i, "any")) d = same;
        else d = (p = same == mask) ? mask : 0; // match.all
        set(run, first + lane, i->operand[0].reg, d);
        if (i->operand[0].second >= 0) set(run, first + lane, i->operand[0].second, p);
    }
    return true;
}

// Lets one complete group of the warp pass. *passed: there was one.
static bool meet(Run *run, int first, bool *passed) {
    int lanes = run->threads - first < 32 ? run->threads - first : 32;
    for (int lane = 0; lane < lanes; lane++) {
        Lane *l = &run->lane[first + lane];
        if (!l->waits) continue;
        const RefInstr *i = &run->program->instr[l->pc];
        if (!(l->mask >> lane & 1)) return fail(run, "not in its own mask", i);
        bool complete = true;
        for (int other = 0; other < 32; other++) {
            if (!(l->mask >> other & 1)) continue;
            if (other >= lanes || run->lane[first + other].done)
                return fail(run, "names no lane", i);
            Lane *o = &run->lane[first + other];
            complete = complete && o->waits && o->pc == l->pc && o->mask == l->mask;
        }
        if (!complete) continue;
        uint32_t mask = l->mask;
        if (!together(run, first, mask, i)) return false;
        for (int other = 0; other < lanes; other++) {
            if (!(mask >> other & 1)) continue;
            run->lane[first + other].waits = false;
            run->lane[first + other].pc++;
        }
        *passed = true;
        return true;
    }
    return true;
}

static bool run_warp(Run *run, int first) {
    for (;;) {
        bool all = true, passed = false;
        for (int lane = first; lane < run->threads && lane < first + 32; lane++) {
            if (!run_lane(run, lane)) return false;
            all = all && run->lane[lane].done;
        }
        if (all) return true;
        if (!meet(run, first, &passed)) return false;
        if (!passed) return fail(run, "lanes wait for each other", NULL);
    }
}

bool ref_run(const RefProgram *program, int threads, const uint32_t *in, int in_words,
             uint32_t *out,
             int out_words, char error[256]) {
    Run run = { program, calloc((size_t)threads, sizeof(Lane)), threads, in_words, out_words, in,
                out,
                error };
    bool ok = run.lane != NULL;
    for (int first = 0; ok && first < threads; first += 32) ok = run_warp(&run, first);
    free(run.lane);
    return ok;
}
