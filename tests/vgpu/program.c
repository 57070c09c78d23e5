// SPDX-License-Identifier: Apache-2.0
#include <stdbool.h>
#include <string.h>

#include "tests/vgpu/program.h"

uint64_t random_next(Random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int random_below(Random *random, int n) {
    return (int)(random_next(random) % (uint64_t)n);
}

uint64_t random_value(Random *random, int bits) {
    // Edges of integers, .f16, .bf16, .f32 and .f64; those that are too wide are cut.
    static const uint64_t edges[] = {
        0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7fff, 0x8000,
        0xffff,
        0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 0xfffffffe, 0x7fffffffffffffff,
        0x8000000000000000, 0xffffffffffffffff, 0x100000000, 0xffffff, 0x800000, 0x1000000,
        0x3f800000, 0xbf800000, 0x3f000000, 0x3fc00000, 0x40200000, 0x7f800000, 0xff800000,
        0x7fc00000,
        0x7f800001, 0xffc12345, 0x7f7fffff, 0xff7fffff, 0x00800000, 0x007fffff, 0x80000001,
        0x00000001,
        0x3f7fffff, 0x3f800001, 0x4b000001, 0x4f000000, 0xcf000000, 0x4f800000, 0x5f000000,
        0x5f800000,
        0x477fe000, 0x477ff000, 0x33000000, 0x33000001, 0x38800000, 0x387fc000, 0x3f808000,
        0x3f818000,
        0x3ff0000000000000, 0xbfe0000000000000, 0x7ff0000000000000, 0xfff0000000000000,
        0x7ff8000000000000, 0x7fefffffffffffff, 0x0010000000000000, 0x000fffffffffffff,
        0x43e0000000000000, 0x41dfffffffc00000, 0x36a0000000000000, 0x47efffffe0000000,
        0x3c003c00, 0x7bff7bff, 0x7c00fc00, 0x7e000001, 0x04000400, 0x03ff83ff, 0x3f803f80,
        0x7f7f0080,
        0x3c01bc01, 0x00010001, 0x80008000,
    };
    uint64_t value;
    switch (random_below(random, 5)) {
    case 0: value = random_next(random); break;
    case 1: value = random_next(random) >> random_below(random, 64); break;
    case 2: // a float around 1 of some width
        value = bits == 64 ? 0x3fe0000000000000 + (random_next(random) >> 10)
                           : 0x3e000000 + (random_next(random) >> 38);
        if (random_below(random, 2)) value |= 1ull << (bits - 1);
        break;
    default: value = edges[random_below(random, (int)(sizeof edges / sizeof edges[0]))];
    }
    return bits == 64 ? value : value & ((1ull << bits) - 1);
}

/* Text ----------------------------------------------------------------------------------------- */

// Pools: %r1..%r10, %rd4..%rd7, %h1..%h6, %f1..%f6, %d1..%d4, %p1..%p4. The rest is scratch.
typedef struct Maker {
    FILE *to;
    Random random;
    int labels, depth, masks, work;
} Maker;

static int below(Maker *m, int n) {
    return random_below(&m->random, n);
}

static void head(FILE *to) {
    fputs(".version 8.7\n.target sm_90\n.address_size 64\n"
          ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
          ".reg .b32 %r<64>;\n.reg .b64 %rd<16>;\n.reg .b16 %h<8>;\n.reg .f32 %f<8>;\n"
          ".reg .f64 %d<8>;\n.reg .pred %p<16>;\n"
          "ld.param.u64 %rd1, [in];\nld.param.u64 %rd2, [out];\nmov.u32 %r0, %tid.x;\n", to);
    fprintf(to, "mad.wide.u32 %%rd1, %%r0, %d, %%rd1;\nmad.wide.u32 %%rd2, %%r0, %d, %%rd2;\n",
            4 * PROGRAM_IN, 4 * PROGRAM_OUT);
}

static void load_pools(FILE *to) {
    int word = 0;
    for (int k = 1; k <= 10; k++) fprintf(to, "ld.global.u32 %%r%d, [%%rd1+%d];\n", k, 4 * word++);
    for (int k = 4; k <= 7; k++, word += 2)
        fprintf(to, "ld.global.u32 %%r40, [%%rd1+%d];\nld.global.u32 %%r41, [%%rd1+%d];\n"
                "mov.b64 %%rd%d, {%%r40, %%r41};\n", 4 * word, 4 * word + 4, k);
    for (int k = 1; k <= 6; k++)
        fprintf(to, "ld.global.u32 %%r40, [%%rd1+%d];\nmov.b32 %%f%d, %%r40;\n"
                "shr.u32 %%r41, %%r40, %d;\ncvt.u16.u32 %%h%d, %%r41;\n", 4 * word++, k, 3 * k, k);
    for (int k = 1; k <= 4; k++)
        fprintf(to, "mov.b64 %%d%d, %%rd%d;\nsetp.lt.s32 %%p%d, %%r%d, 5;\n", k, k + 3, k, k);
}

static void store_pools(FILE *to) {
    int word = 0;
    for (int k = 1; k <= 10; k++) fprintf(to, "st.global.u32 [%%rd2+%d], %%r%d;\n", 4 * word++, k);
    for (int k = 4; k <= 7; k++, word += 2)
        fprintf(to, "mov.b64 {%%r40, %%r41}, %%rd%d;\nst.global.u32 [%%rd2+%d], %%r40;\n"
                "st.global.u32 [%%rd2+%d], %%r41;\n", k, 4 * word, 4 * word + 4);
    for (int k = 1; k <= 6; k++)
        fprintf(to, "mov.b32 %%r40, %%f%d;\nst.global.u32 [%%rd2+%d], %%r40;\n"
                "cvt.u32.u16 %%r41, %%h%d;\nst.global.u32 [%%rd2+%d], %%r41;\n", k, 4 * word, k,
                4 * word + 4),
            word += 2;
    for (int k = 1; k <= 4; k++, word += 2)
        fprintf(to, "mov.b64 {%%r40, %%r41}, %%d%d;\nst.global.u32 [%%rd2+%d], %%r40;\n"
                "st.global.u32 [%%rd2+%d], %%r41;\n", k, 4 * word, 4 * word + 4);
    for (int k = 1; k <= 4; k++)
        fprintf(to, "selp.u32 %%r40, 1, 0, %%p%d;\nst.global.u32 [%%rd2+%d], %%r40;\n", k,
                4 * word++);
}

/* One instruction ------------------------------------------------------------------------------ */

static void name_register(Maker *m, char letter, char to[32]) {
    switch (letter) {
    case 'r': snprintf(to, 32, "%%r%d", 1 + below(m, 10)); break;
    case 'R': snprintf(to, 32, "%%rd%d", 4 + below(m, 4)); break;
    case 'h': snprintf(to, 32, "%%h%d", 1 + below(m, 6)); break;
    case 'f': snprintf(to, 32, "%%f%d", 1 + below(m, 6)); break;
    case 'g': snprintf(to, 32, "%%d%d", 1 + below(m, 4)); break;
    default: snprintf(to, 32, "%%p%d", 1 + below(m, 4)); break;
    }
}

static void source(Maker *m, char letter, bool immediates, char to[32]) {
    char from[32];
    switch (letter) {
    case 'n':
        name_register(m, 'r', from);
        fprintf(m->to, "or.b32 %%r42, %s, 1;\n", from);
        snprintf(to, 32, "%%r42");
        return;
    case 'N':
        name_register(m, 'R', from);
        fprintf(m->to, "or.b64 %%rd9, %s, 1;\n", from);
        snprintf(to, 32, "%%rd9");
        return;
    case 'k':
        name_register(m, 'h', from);
        fprintf(m->to, "or.b16 %%h7, %s, 1;\n", from);
        snprintf(to, 32, "%%h7");
        return;
    case 'B':
        name_register(m, 'r', from);
        fprintf(m->to, "and.b32 %%r43, %s, 31;\n", from);
        snprintf(to, 32, "%%r43");
        return;
    case 'm': snprintf(to, 32, "%d", below(m, 256)); return;
    case 'P':
        name_register(m, 'p', from);
        snprintf(to, 32, "%s%s", below(m, 2) ? "!" : "", from);
        return;
    default: break;
    }
    if (!immediates || below(m, 6)) name_register(m, letter, to);
    else if (letter == 'r') snprintf(to, 32, "%u", (unsigned)random_value(&m->random, 32));
    else if (letter == 'R') snprintf(to, 32, "%lld", (long long)random_value(&m->random, 64));
    else if (letter == 'f') snprintf(to, 32, "0f%08X", (unsigned)random_value(&m->random, 32));
    else if (letter == 'g') snprintf(to, 32, "0d%016llX",
                                     (unsigned long long)random_value(&m->random, 64));
    else name_register(m, letter, to);
}

static void instruction(Maker *m, const Form *form) {
    char d[80], s[4][32], guard[32] = "";
    int n = (int)strlen(form->operands) - 1;
    // Immediates are for forms of more operands than one, and none of the half types.
    bool immediates = n > 1 && strncmp(form->op, "cvt", 3) != 0 && !strstr(form->op, "f16");
    for (int k = 0; k < n; k++) source(m, form->operands[k + 1], immediates && k == 1, s[k]);
    if (form->operands[0] == 'q') {
        int first = 1 + below(m, 4), second = first % 4 + 1;
        snprintf(d, sizeof d, "%%p%d|%%p%d", first, second);
    } else {
        name_register(m, form->operands[0], d);
    }
    if (!below(m, 5)) snprintf(guard, sizeof guard, "@%s%%p%d ", below(m, 2) ? "!" : "",
                               1 + below(m, 4));
    fprintf(m->to, "%s%s %s", guard, form->op, d);
    for (int k = 0; k < n; k++) fprintf(m->to, ", %s", s[k]);
    fputs(";\n", m->to);
}

// Sums of more words than one, by carries.
static void carries(Maker *m) {
    static const char *const rows[][3] = {
        { "add.cc.u32", "addc.cc.u32", "addc.u32" }, { "sub.cc.u32", "subc.cc.u32", "subc.u32" },
        { "add.cc.u64", "addc.cc.u64", "addc.u64" }, { "mad.lo.cc.u32", "madc.hi.cc.u32",
                                                       "madc.lo.u32" },
    };
    int row = below(m, 4);
    for (int k = 0; k < 3; k++) {
        char r[4][32];
        for (int n = 0; n < 4; n++) name_register(m, row == 2 ? 'R' : 'r', r[n]);
        if (row == 3) fprintf(m->to, "%s %s, %s, %s, %s;\n", rows[row][k], r[0], r[1], r[2], r[3]);
        else fprintf(m->to, "%s %s, %s, %s;\n", rows[row][k], r[0], r[1], r[2]);
    }
}

void program_straight(FILE *to, uint64_t seed, int n_instructions) {
    Maker m = { .to = to, .random = { seed } };
    head(to);
    load_pools(to);
    for (int i = 0; i < n_instructions; i++) {
        if (!below(&m, 40)) carries(&m);
        else instruction(&m, &program_forms[below(&m, program_n_forms)]);
    }
    store_pools(to);
    fputs("ret;\n}\n", to);
}

static const char *prefix_of(char letter) {
    switch (letter) {
    case 'R': case 'N': return "rd";
    case 'h': case 'k': return "h";
    case 'f': return "f";
    case 'g': return "d";
    case 'p': case 'P': return "p";
    default: return "r";
    }
}

void program_form(FILE *to, int i) {
    const Form *form = &program_forms[i];
    int n = (int)strlen(form->operands) - 1;
    head(to);
    for (int k = 0; k < n; k++) {
        fprintf(to, "ld.global.u32 %%r40, [%%rd1+%d];\nld.global.u32 %%r41, [%%rd1+%d];\n", 8 * k,
                8 * k + 4);
        switch (form->operands[k + 1]) {
        case 'r': fprintf(to, "mov.b32 %%r%d, %%r40;\n", k + 1); break;
        case 'n': fprintf(to, "or.b32 %%r%d, %%r40, 1;\n", k + 1); break;
        case 'B': fprintf(to, "and.b32 %%r%d, %%r40, 31;\n", k + 1); break;
        case 'R': fprintf(to, "mov.b64 %%rd%d, {%%r40, %%r41};\n", k + 4); break;
        case 'N': fprintf(to, "or.b32 %%r40, %%r40, 1;\nmov.b64 %%rd%d, {%%r40, %%r41};\n",
                          k + 4); break;
        case 'h': fprintf(to, "cvt.u16.u32 %%h%d, %%r40;\n", k + 1); break;
        case 'k': fprintf(to, "or.b32 %%r40, %%r40, 1;\ncvt.u16.u32 %%h%d, %%r40;\n", k + 1); break;
        case 'f': fprintf(to, "mov.b32 %%f%d, %%r40;\n", k + 1); break;
        case 'g': fprintf(to, "mov.b64 %%d%d, {%%r40, %%r41};\n", k + 1); break;
        case 'p': fprintf(to, "setp.lt.s32 %%p%d, %%r40, 5;\n", k + 1); break;
        case 'P': fprintf(to, "setp.lt.s32 %%p%d, %%r40, 7;\n", k + 1); break;
        default: break;
        }
    }
    static const struct { char letter; const char *d, *store; } results[] = {
        { 'r', "%r20", "mov.b32 %r40, %r20;\nmov.u32 %r41, 0;\n" },
        { 'R', "%rd10", "mov.b64 {%r40, %r41}, %rd10;\n" },
        { 'h', "%h7", "cvt.u32.u16 %r40, %h7;\nmov.u32 %r41, 0;\n" },
        { 'f', "%f7", "mov.b32 %r40, %f7;\nmov.u32 %r41, 0;\n" },
        { 'g', "%d7", "mov.b64 {%r40, %r41}, %d7;\n" },
        { 'p', "%p10", "selp.u32 %r40, 1, 0, %p10;\nmov.u32 %r41, 0;\n" },
        { 'q', "%p10|%p11", "selp.u32 %r40, 1, 0, %p10;\nselp.u32 %r41, 1, 0, %p11;\n" },
    };
    for (size_t k = 0; k < sizeof results / sizeof results[0]; k++) {
        if (results[k].letter != form->operands[0]) continue;
        fprintf(to, "%s %s", form->op, results[k].d);
        for (int s = 0; s < n; s++) {
            char letter = form->operands[s + 1];
            if (letter == 'm') fprintf(to, ", %d", 0x96 + 7 * i % 100);
            else fprintf(to, ", %%%s%d", prefix_of(letter), strchr("RN", letter) ? s + 4 : s + 1);
        }
        fprintf(to, ";\n%s", results[k].store);
    }
    fputs("st.global.u32 [%rd2], %r40;\nst.global.u32 [%rd2+4], %r41;\nret;\n}\n", to);
}

/* Control flow --------------------------------------------------------------------------------- */

// %r30..%r37 hold the masks of lanes at each depth; %r46 and up and %p8 and up are scratch.
enum { FIRST_MASK = 30, LAST_MASK = 37 };

static void block(Maker *m, int mask, int exit_label, int length);

static void plain(Maker *m) {
    static const Form forms[] = {
        { "add.u32", "rrr" }, { "mad.lo.u32", "rrrr" }, { "xor.b32", "rrr" },
        { "shf.l.wrap.b32", "rrrr" },
        { "sub.s32", "rrr" }, { "setp.lt.u32", "prr" }, { "setp.ge.s32", "prr" },
        { "selp.b32", "rrrp" },
        { "add.u64", "RRR" }, { "cvt.u32.u64", "rR" }, { "mul.wide.u32", "Rrr" },
        { "popc.b32", "rr" },
    };
    instruction(m, &forms[below(m, (int)(sizeof forms / sizeof forms[0]))]);
}

static void condition(Maker *m, const char *p) { // a predicate that differs by lane, often
    int r = 1 + below(m, 10);
    switch (below(m, 3)) {
    case 0: fprintf(m->to, "and.b32 %%r46, %%r%d, %d;\nsetp.ne.u32 %s, %%r46, 0;\n", r,
                    1 << below(m, 5), p); break;
    case 1: fprintf(m->to, "setp.lt.s32 %s, %%r%d, %%r%d;\n", p, r, 1 + below(m, 10)); break;
    default: fprintf(m->to, "setp.gt.u32 %s, %%r0, %d;\n", p, below(m, 40)); break;
    }
}

// Something the lanes of the mask do together.
static void exchange(Maker *m, int mask) {
    int d = 1 + below(m, 10), a = 1 + below(m, 10), p = 1 + below(m, 4);
    switch (below(m, 7)) {
    case 0: // from the k-th lane of the mask
        fprintf(m->to, "popc.b32 %%r46, %%r%d;\nrem.u32 %%r46, %%r%d, %%r46;\nadd.u32 %%r46,"
                " %%r46, 1;\n"
                "fns.b32 %%r46, %%r%d, 0, %%r46;\nshfl.sync.idx.b32 %%r%d, %%r%d, %%r46, 31,"
                " %%r%d;\n",
                mask, a, mask, d, 1 + below(m, 10), mask);
        break;
    case 1:
        fprintf(m->to, "shfl.sync.up.b32 %%r%d|%%p%d, %%r%d, 0, 0, %%r%d;\n", d, p, a, mask);
        break;
    case 2: fprintf(m->to, "vote.sync.ballot.b32 %%r%d, %%p%d, %%r%d;\n", d, p, mask); break;
    case 3: {
        static const char *const kinds[] = { "any", "all", "uni" };
        fprintf(m->to, "vote.sync.%s.pred %%p%d, %s%%p%d, %%r%d;\n", kinds[below(m, 3)], p,
                below(m, 2) ? "!" : "", 1 + below(m, 4), mask);
        break;
    }
    case 4: {
        static const char *const kinds[] = { "add.u32", "min.s32", "max.u32", "min.u32", "add.s32",
                                             "and.b32", "or.b32", "xor.b32" };
        fprintf(m->to, "redux.sync.%s %%r%d, %%r%d, %%r%d;\n", kinds[below(m, 8)], d, a, mask);
        break;
    }
    case 5:
        fprintf(m->to, "and.b32 %%r46, %%r%d, 3;\nmatch.any.sync.b32 %%r%d, %%r46, %%r%d;\n", a, d,
                mask);
        break;
    default:
        fprintf(m->to, "and.b32 %%r46, %%r%d, 1;\nmatch.all.sync.b32 %%r%d|%%p%d, %%r46, %%r%d;\n",
                a, d, p, mask);
        break;
    }
}

static void branch_if(Maker *m, int mask, int exit_label) {
    int label = m->labels++;
    bool other = below(m, 2);
    condition(m, "%p8");
    // The lanes that go in and those that do not, known to both before they part.
    fprintf(m->to, "vote.sync.ballot.b32 %%r%d, %%p8, %%r%d;\n", mask + 1, mask);
    if (other) {
        fprintf(m->to, "@!%%p8 bra ELSE%d;\n", label);
        block(m, mask + 1, exit_label, 1 + below(m, 4));
        fprintf(m->to, "bra END%d;\nELSE%d:\nnot.b32 %%r47, %%r%d;\nand.b32 %%r%d, %%r%d,"
                " %%r47;\n", label,
                label, mask + 1, mask + 1, mask);
        block(m, mask + 1, exit_label, 1 + below(m, 4));
    } else {
        fprintf(m->to, "@!%%p8 bra END%d;\n", label);
        block(m, mask + 1, exit_label, 1 + below(m, 5));
    }
    fprintf(m->to, "END%d:\n", label);
}

// A loop whose lanes leave at different turns, by its head and by a break in the middle. The
// counter of each depth is %r(20 + depth).
static void loop(Maker *m, int mask, int exit_label) {
    int label = m->labels++, counter = 20 + mask - FIRST_MASK;
    fprintf(m->to, "and.b32 %%r%d, %%r%d, %d;\nmov.b32 %%r%d, %%r%d;\n", counter, 1 + below(m, 10),
            below(m, 2) ? 3 : 7, mask + 1, mask);
    fprintf(m->to, "HEAD%d:\nsetp.ne.u32 %%p9, %%r%d, 0;\nvote.sync.ballot.b32 %%r47, %%p9,"
            " %%r%d;\n"
            "@!%%p9 bra END%d;\nmov.b32 %%r%d, %%r47;\nsub.u32 %%r%d, %%r%d, 1;\n",
            label, counter, mask + 1, label, mask + 1, counter, counter);
    block(m, mask + 1, exit_label, 1 + below(m, 3));
    if (below(m, 2)) { // a break
        condition(m, "%p8");
        fprintf(m->to, "vote.sync.ballot.b32 %%r47, !%%p8, %%r%d;\n@%%p8 bra END%d;\n"
                "mov.b32 %%r%d, %%r47;\n", mask + 1, label, mask + 1);
        block(m, mask + 1, exit_label, 1 + below(m, 2));
    }
    fprintf(m->to, "bra HEAD%d;\nEND%d:\n", label, label);
}

// `mask`: number of the register with the lanes that are here. Lanes exit only where all are
// together, so that the masks outside stay right.
static void block(Maker *m, int mask, int exit_label, int length) {
    for (int i = 0; i < length; i++) {
        int what = below(m, 10);
        bool deep = mask >= LAST_MASK - 3 || m->work > 60;
        m->work++;
        if (what < 4) plain(m);
        else if (what < 6) exchange(m, mask);
        else if (what == 6 && mask == FIRST_MASK) {
            condition(m, "%p8");
            fprintf(m->to, "vote.sync.ballot.b32 %%r47, !%%p8, %%r%d;\n@%%p8 bra EXIT;\n"
                    "mov.b32 %%r%d, %%r47;\n", mask, mask);
        } else if (deep) plain(m);
        else if (what < 8) loop(m, mask, exit_label);
        else branch_if(m, mask, exit_label);
    }
}

void program_flow(FILE *to, uint64_t seed) {
    Maker m = { .to = to, .random = { seed } };
    head(to);
    load_pools(to);
    // The lanes of this warp: all, or those up to the block's end.
    fputs("mov.u32 %r45, %ntid.x;\nand.b32 %r44, %r0, -32;\nsub.u32 %r45, %r45, %r44;\n"
          "min.u32 %r45, %r45, 32;\nbmsk.clamp.b32 %r30, 0, %r45;\n", to);
    block(&m, FIRST_MASK, 0, 4 + below(&m, 8));
    fputs("bar.warp.sync %r30;\nEXIT:\n", to);
    store_pools(to);
    fputs("ret;\n}\n", to);
}
