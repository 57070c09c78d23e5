// SPDX-License-Identifier: Apache-2.0
// Tokens of PTX. Comments and white space disappear; the line number is kept for every token.
//
// Dots never belong to names, so `ld.global.u32` is a name and two directives, and `%tid.x` a name
// and a directive that the parser joins. `::` stays inside a name or directive ("shared::cta").
#include <stdlib.h>

#include "runtime/vgpu/ptx.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
static bool is_name(char c) { return is_name_start(c) || is_digit(c); }

static int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// False at the end of an unterminated comment.
static bool skip_space(PtxLexer *x) {
    while (x->at < x->end) {
        char c = *x->at;
        if (c == '\n') {
            x->line++;
            x->at++;
        } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
            x->at++;
        } else if (c == '/' && x->at + 1 < x->end && x->at[1] == '/') {
            while (x->at < x->end && *x->at != '\n') x->at++;
        } else if (c == '/' && x->at + 1 < x->end && x->at[1] == '*') {
            x->at += 2;
            while (x->at + 1 < x->end && !(x->at[0] == '*' && x->at[1] == '/')) {
                if (*x->at == '\n') x->line++;
                x->at++;
            }
            if (x->at + 1 >= x->end) {
                x->at = x->end;
                return false;
            }
            x->at += 2;
        } else {
            break;
        }
    }
    return true;
}

// Name characters and "::" pairs; a single ':' ends a label and is left.
static const char *scan_name(const char *at, const char *end) {
    while (at < end) {
        if (is_name(*at)) at++;
        else if (end - at > 2 && at[0] == ':' && at[1] == ':' && is_name(at[2])) at += 2;
        else break;
    }
    return at;
}

// 0f3F800000 and 0d3FF0000000000000: the bits of a float or double.
static bool lex_exact_float(PtxLexer *x, PtxToken *t) {
    int digits = (x->at[1] | 32) == 'f' ? 8 : 16;
    if (x->end - x->at < 2 + digits) return false;
    uint64_t bits = 0;
    for (int k = 0; k < digits; k++) {
        int h = hex_digit(x->at[2 + k]);
        if (h < 0) return false;
        bits = bits << 4 | (uint64_t)h;
    }
    t->kind = PTX_T_FLOAT;
    t->bits = bits;
    t->float_bits = digits == 8 ? 32 : 64;
    x->at += 2 + digits;
    return x->at == x->end || !is_name(*x->at);
}

static bool lex_integer(PtxLexer *x, PtxToken *t) {
    const char *s = x->at;
    uint64_t base = 10, value = 0;
    if (*s == '0' && s + 1 < x->end) {
        char k = s[1] | 32;
        base = k == 'x' ? 16 : k == 'b' ? 2 : 8;
        s += base == 8 ? 1 : 2;
    }
    const char *first = s;
    while (s < x->end) {
        int h = hex_digit(*s);
        if (h < 0 || (uint64_t)h >= base) break;
        if (__builtin_mul_overflow(value, base, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)h, &value)) return false;
        s++;
    }
    if (s == first && base != 8) return false;
    if (s < x->end && *s == 'U') s++;
    t->kind = PTX_T_INT;
    t->bits = value;
    x->at = s;
    return s == x->end || !is_name(*s);
}

// Decimal floats are doubles, as in C: 1.5, 2e-3, .5 is not written by anyone.
static bool lex_decimal_float(PtxLexer *x, PtxToken *t) {
    char copy[64];
    size_t n = 0;
    const char *s = x->at;
    while (s < x->end && n + 1 < sizeof copy) {
        bool sign = (*s == '+' || *s == '-') && n && (copy[n - 1] | 32) == 'e';
        if (!is_digit(*s) && *s != '.' && (*s | 32) != 'e' && !sign) break;
        copy[n++] = *s++;
    }
    copy[n] = 0;
    char *end;
    double value = strtod(copy, &end);
    if (*end) return false;
    t->kind = PTX_T_FLOAT;
    t->float_bits = 64;
    memcpy(&t->bits, &value, 8);
    x->at = s;
    return s == x->end || !is_name(*s);
}

static bool lex_number(PtxLexer *x, PtxToken *t) {
    const char *s = x->at;
    if (*s == '0' && s + 1 < x->end) {
        char k = s[1] | 32;
        if (k == 'f' || k == 'd') return lex_exact_float(x, t);
        if (k == 'x' || k == 'b') return lex_integer(x, t);
    }
    while (s < x->end && is_digit(*s)) s++;
    bool is_float =
        s < x->end && ((*s == '.' && s + 1 < x->end && is_digit(s[1])) || (*s | 32) == 'e');
    return is_float ? lex_decimal_float(x, t) : lex_integer(x, t);
}

static bool lex_string(PtxLexer *x, PtxToken *t) {
    const char *s = x->at + 1;
    while (s < x->end && *s != '"' && *s != '\n') s += *s == '\\' && s + 1 < x->end ? 2 : 1;
    if (s >= x->end || *s != '"') return false;
    t->kind = PTX_T_STRING;
    t->at = x->at + 1;
    t->n = (uint32_t)(s - t->at);
    x->at = s + 1;
    return true;
}

PtxToken ptx_next(PtxLexer *x) {
    bool whole = skip_space(x);
    PtxToken t = { .kind = whole ? PTX_T_END : PTX_T_BAD, .at = x->at, .line = x->line };
    if (x->at >= x->end) return t;
    const char *from = x->at;
    char c = *from;
    bool ok = true;
    if (is_name_start(c)) {
        t.kind = PTX_T_NAME;
        x->at = scan_name(from + 1, x->end);
    } else if (c == '.' && x->at + 1 < x->end && is_name(x->at[1])) {
        t.kind = PTX_T_DIRECTIVE;
        x->at = scan_name(from + 1, x->end);
    } else if (is_digit(c)) {
        ok = lex_number(x, &t);
    } else if (c == '"') {
        ok = lex_string(x, &t);
        if (ok) return t;
    } else if (strchr("(){}[]<>,;:@!|+-=*/~&^?", c)) {
        t.kind = PTX_T_PUNCT;
        x->at++;
    } else {
        ok = false;
    }
    if (!ok) {
        t.kind = PTX_T_BAD;
        if (x->at == from) x->at++;
    }
    t.n = (uint32_t)(x->at - from);
    return t;
}
