// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/vgpu/ref.h"

typedef struct Label { char name[24]; int at; } Label;
typedef struct Parser {
    RefProgram *program;
    Label label[512];
    int n_labels;
    const char *at, *line;
    char *error;
} Parser;

static void skip(Parser *p) {
    while (*p->at == ' ') p->at++;
}

static bool take(Parser *p, char c) {
    skip(p);
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static bool fail(Parser *p, const char *what) {
    snprintf(p->error, 256, "%s: %.100s", what, p->line);
    return false;
}

static size_t name(Parser *p, char *to, size_t bytes) {
    skip(p);
    size_t n = 0;
    while (isalnum((unsigned char)*p->at) || strchr("_%$.", *p->at)) {
        if (!*p->at) break;
        if (n + 1 < bytes) to[n++] = *p->at;
        p->at++;
    }
    to[n] = 0;
    return n;
}

static int reg(Parser *p, const char *text) {
    RefProgram *program = p->program;
    for (int i = 0; i < program->n_names; i++)
        if (!strcmp(program->names[i], text)) return i;
    if (program->n_names == REF_REGISTERS) return 0;
    snprintf(program->names[program->n_names], sizeof program->names[0], "%s", text);
    return program->n_names++;
}

static bool number(Parser *p, uint64_t *value) {
    skip(p);
    char *end;
    bool bits = p->at[0] == '0' && (p->at[1] == 'f' || p->at[1] == 'd') &&
    isxdigit((unsigned char)p->at[2]);
    if (bits) *value = strtoull(p->at + 2, &end, 16);
    else if (*p->at == '-') *value = (uint64_t)strtoll(p->at, &end, 0);
    else *value = strtoull(p->at, &end, 0);
    if (end == p->at) return fail(p, "not a number");
    if (*end == 'U') end++;
    p->at = end;
    return true;
}

static bool operand(Parser *p, RefOperand *o) {
    char text[24];
    *o = (RefOperand){ .second = -1 };
    skip(p);
    if (take(p, '[')) { // an address: register or name, and an offset
        if (!name(p, text, sizeof text)) return fail(p, "address");
        o->kind = text[0] == '%' ? REF_REG : REF_LABEL;
        if (text[0] == '%') o->reg = reg(p, text);
        snprintf(o->label, sizeof o->label, "%s", text);
        if (take(p, '+') && !number(p, &o->value)) return false;
        return take(p, ']') || fail(p, "]");
    }
    if (take(p, '{')) {
        o->kind = REF_PAIR;
        name(p, text, sizeof text);
        o->reg = reg(p, text);
        if (!take(p, ',')) return fail(p, "pair");
        name(p, text, sizeof text);
        o->second = reg(p, text);
        return take(p, '}') || fail(p, "}");
    }
    o->negated = take(p, '!');
    if (isdigit((unsigned char)*p->at) || *p->at == '-') {
        o->kind = REF_IMMEDIATE;
        return number(p, &o->value);
    }
    if (!name(p, text, sizeof text)) return fail(p, "operand");
    o->kind = text[0] == '%' ? REF_REG : REF_LABEL;
    snprintf(o->label, sizeof o->label, "%s", text);
    if (o->kind == REF_LABEL) return true;
    o->reg = reg(p, text);
    if (take(p, '|')) {
        name(p, text, sizeof text);
        o->second = reg(p, text);
    }
    return true;
}

static bool instruction(Parser *p) {
    RefInstr *i = &p->program->instr[p->program->n++];
    *i = (RefInstr){ .guard = -1, .target = -1 };
    snprintf(i->text, sizeof i->text, "%s", p->line);
    char text[160];
    if (take(p, '@')) {
        i->guard_negated = take(p, '!');
        name(p, text, sizeof text);
        i->guard = reg(p, text);
    }
    if (!name(p, text, sizeof text)) return fail(p, "opcode");
    char *keep = NULL;
    for (char *word = strtok_r(text, ".", &keep); word; word = strtok_r(NULL, ".", &keep)) {
        if (i->n_words == REF_WORDS) return fail(p, "long opcode");
        snprintf(i->word[i->n_words++], sizeof i->word[0], "%s", word);
    }
    while (!take(p, ';')) {
        if (i->n_operands == REF_OPERANDS) return fail(p, "many operands");
        if (!operand(p, &i->operand[i->n_operands++])) return false;
        take(p, ',');
    }
    return true;
}

static bool line(Parser *p) {
    skip(p);
    if (!*p->at || *p->at == '.' || *p->at == '{' || *p->at == '}' || *p->at == '/') return true;
    const char *colon = strchr(p->at, ':');
    if (!colon) return instruction(p);
    Label *label = &p->label[p->n_labels++];
    if (p->n_labels == (int)(sizeof p->label / sizeof p->label[0])) return fail(p, "many labels");
    name(p, label->name, sizeof label->name);
    label->at = p->program->n;
    return true;
}

bool ref_parse(const char *ptx, RefProgram *program, char error[256]) {
    size_t lines = 1;
    for (const char *c = ptx; *c; c++) lines += *c == '\n';
    *program = (RefProgram){ .instr = calloc(lines, sizeof *program->instr) };
    Parser *p = calloc(1, sizeof *p);
    char *copy = strdup(ptx), *keep = NULL;
    p->program = program;
    p->error = error;
    bool ok = true;
    for (char *text = strtok_r(copy, "\n", &keep); ok && text; text = strtok_r(NULL, "\n", &keep)) {
        p->line = p->at = text;
        ok = line(p);
    }
    for (int i = 0; ok && i < program->n; i++) {
        RefInstr *instr = &program->instr[i];
        if (strcmp(instr->word[0], "bra")) continue;
        for (int k = 0; k < p->n_labels; k++)
            if (!strcmp(p->label[k].name, instr->operand[0].label)) instr->target = p->label[k].at;
        if (instr->target < 0) ok = fail(p, "no such label");
    }
    free(copy);
    free(p);
    if (!ok) ref_finish(program);
    return ok;
}

void ref_finish(RefProgram *program) {
    free(program->instr);
    program->instr = NULL;
}

bool ref_has(const RefInstr *instr, const char *word) {
    for (int i = 1; i < instr->n_words; i++)
        if (!strcmp(instr->word[i], word)) return true;
    return false;
}

RefType ref_type(const char *word) {
    static const struct { const char *name; RefType type; } special[] = {
        { "pred", { 'p', 1, 1 } },   { "bf16", { 'h', 16, 1 } },  { "f16x2", { 'f', 16, 2 } },
        { "bf16x2", { 'h', 16, 2 } }, { "tf32", { 't', 32, 1 } },
    };
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++)
        if (!strcmp(word, special[i].name)) return special[i].type;
    int bits = atoi(word + 1);
    bool width = bits == 8 || bits == 16 || bits == 32 || bits == 64;
    if (!strchr("usbf", word[0]) || !word[0] || !width || strlen(word) > 3) return (RefType){ 0 };
    return (RefType){ word[0], bits, 1 };
}

RefType ref_nth_type(const RefInstr *instr, int i) {
    for (int k = 1; k < instr->n_words; k++) {
        RefType type = ref_type(instr->word[k]);
        if (type.kind && i-- == 0) return type;
    }
    return (RefType){ 0 };
}
