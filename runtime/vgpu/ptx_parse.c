// SPDX-License-Identifier: Apache-2.0
// Declarations of PTX: module directives, variables with initialisers, functions and prototypes.
//
// Recursive descent over one token of look-ahead. What is not understood is an error with its line,
// never skipped, except the contents of .section (debug tables).
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/ptx_parse.h"

static const struct { const char *name; int bits; char class; } types[] = {
    [PTX_NONE] = { "none", 0, 0 },
#define X(name, spelling, bits, class) [name] = { spelling, bits, class },
    PTX_TYPE_TABLE(X)
#undef X
};
const char *ptx_type_name(PtxType type) { return types[type].name; }
int ptx_type_bits(PtxType type) { return types[type].bits; }
char ptx_type_class(PtxType type) { return types[type].class; }
PtxType ptx_type_find(const char *name) {
    for (int t = 1; t < PTX_TYPE_COUNT; t++)
        if (!strcmp(types[t].name, name)) return (PtxType)t;
    return PTX_NONE;
}

/* tokens -------------------------------------------------------------------------------------- */

void ptx_step(PtxParser *p) { p->token = ptx_next(&p->lexer); }

bool ptx_is(const PtxParser *p, const char *text) {
    size_t n = strlen(text);
    return p->token.n == n && p->token.kind != PTX_T_STRING && !memcmp(p->token.at, text, n);
}

bool ptx_take(PtxParser *p, const char *text) {
    if (!ptx_is(p, text)) return false;
    ptx_step(p);
    return true;
}

Status ptx_bad(PtxParser *p, const char *format, ...) {
    Text what = { 0 }, where = { 0 };
    va_list list;
    va_start(list, format);
    text_vprintf(&what, format, list);
    va_end(list);
    if (p->func) ptx_loc_text(p->module, p->loc, &where);
    int shown = p->token.n > 40 ? 40 : (int)p->token.n;
    Status status = status_fail(ERR_INPUT, "PTX line %u%s%s: %s, found '%.*s'", p->token.line,
                                where.bytes ? ", " : "", text_cstr(&where), text_cstr(&what), shown,
                                p->token.kind == PTX_T_END ? "the end" : p->token.at);
    text_finish(&what);
    text_finish(&where);
    return status;
}

Status ptx_need(PtxParser *p, const char *text) {
    return ptx_take(p, text) ? OK : ptx_bad(p, "expected '%s'", text);
}

char *ptx_text(PtxParser *p) {
    char *text = arena_strndup(p->arena, p->token.at, p->token.n);
    ptx_step(p);
    return text;
}

/* constant expressions: unary - ~ !, then * / %, + -, << >>, & ^ |, parentheses -------------------
 */

static Status expression(PtxParser *p, int level, uint64_t *value);

static Status primary(PtxParser *p, uint64_t *value) {
    if (++p->depth > 200) return ptx_bad(p, "expression nested too deeply");
    if (ptx_take(p, "-")) {
        TRY(primary(p, value));
        *value = 0 - *value;
    } else if (ptx_take(p, "~")) {
        TRY(primary(p, value));
        *value = ~*value;
    } else if (ptx_take(p, "!")) {
        TRY(primary(p, value));
        *value = !*value;
    } else if (ptx_take(p, "+")) {
        TRY(primary(p, value));
    } else if (ptx_take(p, "(")) {
        TRY(expression(p, 0, value));
        TRY(ptx_need(p, ")"));
    } else if (ptx_take(p, "WARP_SZ")) {
        *value = 32;
    } else if (p->token.kind == PTX_T_INT) {
        *value = p->token.bits;
        ptx_step(p);
    } else {
        return ptx_bad(p, "expected an integer");
    }
    p->depth--;
    return OK;
}

// Operators of a level; shifts are two tokens.
static char operator_at(PtxParser *p, int level) {
    static const char *const levels[] = { "|", "^", "&", "<>", "+-", "*/" };
    if (p->token.kind != PTX_T_PUNCT) return 0;
    char c = *p->token.at;
    if (!strchr(levels[level], c)) return 0;
    if ((c == '<' || c == '>') && (p->lexer.at >= p->lexer.end || *p->lexer.at != c)) return 0;
    return c;
}

static Status expression(PtxParser *p, int level, uint64_t *value) {
    if (level == 6) return primary(p, value);
    TRY(expression(p, level + 1, value));
    char c;
    while ((c = operator_at(p, level))) {
        ptx_step(p);
        if (c == '<' || c == '>') ptx_step(p);
        uint64_t right;
        TRY(expression(p, level + 1, &right));
        switch (c) {
        case '|': *value |= right; break;
        case '^': *value ^= right; break;
        case '&': *value &= right; break;
        case '<': *value = right > 63 ? 0 : *value << right; break;
        case '>': *value = right > 63 ? 0 : *value >> right; break;
        case '+': *value += right; break;
        case '-': *value -= right; break;
        case '*': *value *= right; break;
        default:
            if (!right) return ptx_bad(p, "division by zero in a constant");
            *value =
                (uint64_t)((int64_t)right == -1 ? 0 - *value
                                                : (uint64_t)((int64_t)*value / (int64_t)right));
        }
    }
    return OK;
}

// A sum suffices everywhere it is used; `|` must stay free for p|q.
Status ptx_integer(PtxParser *p, uint64_t *value) {
    p->depth = 0;
    return expression(p, 4, value);
}

/* variables ----------------------------------------------------------------------------------- */

uint64_t ptx_var_bytes(const PtxVar *v) {
    return v->count * v->vector * (uint64_t)((ptx_type_bits(v->type) + 7) / 8);
}

uint32_t ptx_var_align(const PtxVar *v) {
    if (v->align) return v->align;
    return v->vector * (uint32_t)((ptx_type_bits(v->type) + 7) / 8);
}

PtxVar *ptx_find_var(const PtxModule *module, const char *name) {
    for (uint32_t i = 0; i < module->n_vars; i++)
        if (!strcmp(module->vars[i]->name, name)) return module->vars[i];
    return NULL;
}

// Of several declarations of one name, the one with a body.
PtxFunc *ptx_find_func(const PtxModule *module, const char *name) {
    PtxFunc *found = NULL;
    for (uint32_t i = 0; i < module->n_funcs; i++)
        if (!strcmp(module->funcs[i]->name, name) && (!found || module->funcs[i]->has_body))
            found = module->funcs[i];
    return found;
}

static uint64_t narrow_float(uint64_t bits, uint8_t from, int to) {
    if (from == 64 && to == 32) {
        double d;
        memcpy(&d, &bits, 8);
        float f = (float)d;
        uint32_t u;
        memcpy(&u, &f, 4);
        return u;
    }
    if (from == 32 && to == 64) {
        uint32_t u = (uint32_t)bits;
        float f;
        memcpy(&f, &u, 4);
        double d = f;
        memcpy(&bits, &d, 8);
    }
    return bits;
}

static Status init_element(PtxParser *p, PtxVar *v, PtxInit *e) {
    e->bytes = (uint32_t)((ptx_type_bits(v->type) + 7) / 8);
    bool minus = p->token.kind == PTX_T_PUNCT && *p->token.at == '-';
    PtxLexer before = p->lexer;
    PtxToken at = p->token;
    if (minus) ptx_step(p);
    if (p->token.kind == PTX_T_FLOAT) {
        uint64_t bits = narrow_float(p->token.bits, p->token.float_bits, ptx_type_bits(v->type));
        if (minus) bits ^= 1ull << (ptx_type_bits(v->type) - 1);
        e->bits = bits;
        ptx_step(p);
        return OK;
    }
    if (p->token.kind == PTX_T_NAME && !ptx_is(p, "WARP_SZ")) {
        if (ptx_take(p, "generic")) {
            e->generic = true;
            TRY(ptx_need(p, "("));
            e->symbol = ptx_text(p);
            TRY(ptx_need(p, ")"));
        } else {
            e->symbol = ptx_text(p);
        }
        if (ptx_is(p, "+") || ptx_is(p, "-")) TRY(ptx_integer(p, &e->bits));
        return OK;
    }
    p->lexer = before;
    p->token = at;
    uint64_t value;
    TRY(ptx_integer(p, &value));
    e->bits = value;
    if (ptx_take(p, "(")) { // 0xFF00(symbol): the byte of the address that the mask selects
        e->mask_shift = value ? (uint32_t)__builtin_ctzll(value) : 0;
        e->bits = 0;
        if (ptx_take(p, "generic")) {
            e->generic = true;
            TRY(ptx_need(p, "("));
            e->symbol = ptx_text(p);
            TRY(ptx_need(p, ")"));
        } else {
            e->symbol = ptx_text(p);
        }
        if (ptx_is(p, "+") || ptx_is(p, "-")) TRY(ptx_integer(p, &e->bits));
        TRY(ptx_need(p, ")"));
    }
    return OK;
}

static Status initialiser(PtxParser *p, PtxVar *v, int depth) {
    uint32_t cap = v->n_inits;
    if (depth > 8) return ptx_bad(p, "initialiser nested too deeply");
    if (!ptx_take(p, "{")) {
        PtxInit *e = ARENA_NEW(p->arena, PtxInit);
        v->inits = e;
        v->n_inits = 1;
        return init_element(p, v, e);
    }
    while (!ptx_is(p, "}")) {
        if (ptx_is(p, "{")) {
            TRY(initialiser(p, v, depth + 1));
            cap = v->n_inits;
        } else {
            PtxInit *e = ARENA_PUSH(p->arena, v->inits, v->n_inits, cap);
            TRY(init_element(p, v, e));
        }
        if (!ptx_take(p, ",")) break;
    }
    return ptx_need(p, "}");
}

// After the space: [.align N] [.v4] .type [.ptr .space .align N] name[dims] [= init]. Also used for
// parameters; leaves the ; , or ) that follows.
Status ptx_declaration(PtxParser *p, PtxVar **out) {
    PtxVar *v = ARENA_NEW(p->arena, PtxVar);
    v->vector = 1;
    v->count = 1;
    v->user = -1;
    v->line = p->token.line;
    while (p->token.kind == PTX_T_DIRECTIVE) {
        char *word = ptx_text(p) + 1;
        uint64_t value;
        if (!strcmp(word, "align")) {
            TRY(ptx_integer(p, &value));
            if (!value || value > 1u << 20 || value & (value - 1))
                return ptx_bad(p, "alignment must be a power of two");
            if (!v->type || !v->align) v->align = (uint32_t)value;
        } else if (!strcmp(word, "ptr")) { // .ptr .global .align N is about what it points to
            if (ptx_is(p, ".global") || ptx_is(p, ".shared") || ptx_is(p, ".const") ||
                ptx_is(p, ".local"))
                ptx_step(p);
            if (ptx_take(p, ".align")) TRY(ptx_integer(p, &value));
        } else if (word[0] == 'v' && (word[1] == '2' || word[1] == '4') && !word[2]) {
            v->vector = (uint32_t)(word[1] - '0');
        } else if (!strcmp(word, "attribute")) {
            while (!ptx_is(p, ")") && p->token.kind != PTX_T_END) ptx_step(p);
            TRY(ptx_need(p, ")"));
        } else {
            PtxType type = ptx_type_find(word);
            if (type == PTX_NONE) return ptx_bad(p, "'.%s' is no type of a variable", word);
            v->type = type;
        }
    }
    if (v->type == PTX_NONE) return ptx_bad(p, "expected a type");
    if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected a name");
    v->name = ptx_text(p);
    while (ptx_take(p, "[")) {
        v->array = true;
        if (ptx_take(p, "]")) {
            v->count = 0;
            continue;
        }
        uint64_t n;
        TRY(ptx_integer(p, &n));
        if (__builtin_mul_overflow(v->count, n, &v->count) || v->count > 1ull << 40)
            return ptx_bad(p, "array too large");
        TRY(ptx_need(p, "]"));
    }
    if (ptx_take(p, "=")) {
        TRY(initialiser(p, v, 0));
        if (v->array && !v->count) v->count = v->n_inits;
        if (v->n_inits > v->count * v->vector) return ptx_bad(p, "more initialisers than elements");
    }
    *out = v;
    return OK;
}

/* directives ---------------------------------------------------------------------------------- */

static Status directive_file(PtxParser *p) {
    uint64_t number;
    TRY(ptx_integer(p, &number));
    if (p->token.kind != PTX_T_STRING) return ptx_bad(p, "expected a file name");
    if (number > 100000) return ptx_bad(p, "file number too large");
    char *name = ptx_text(p);
    PtxModule *m = p->module;
    while (m->n_files <= number) *ARENA_PUSH(p->arena, m->files, m->n_files, p->cap_files) = NULL;
    m->files[number] = name;
    while (ptx_take(p, ",")) {
        uint64_t ignored; // time stamp, size
        TRY(ptx_integer(p, &ignored));
    }
    return OK;
}

// .loc file line column [, function_name label[+n], inlined_at file line column]
static Status directive_loc(PtxParser *p) {
    uint64_t v[3];
    PtxLoc *loc = ARENA_NEW(p->arena, PtxLoc);
    for (int k = 0; k < 3; k++) TRY(ptx_integer(p, &v[k]));
    *loc = (PtxLoc){ (uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], NULL, NULL };
    PtxLoc *outer = loc;
    while (ptx_take(p, ",")) {
        if (ptx_take(p, "function_name")) {
            outer->function = ptx_text(p);
            uint64_t offset;
            if (ptx_is(p, "+")) TRY(ptx_integer(p, &offset));
        } else if (ptx_take(p, "inlined_at")) {
            PtxLoc *next = ARENA_NEW(p->arena, PtxLoc);
            for (int k = 0; k < 3; k++) TRY(ptx_integer(p, &v[k]));
            *next = (PtxLoc){ (uint32_t)v[0], (uint32_t)v[1], (uint32_t)v[2], NULL, NULL };
            outer->inlined = next;
            outer = next;
        } else {
            return ptx_bad(p, "expected function_name or inlined_at");
        }
    }
    p->loc = loc;
    return OK;
}

Status ptx_directive(PtxParser *p, bool *known) {
    *known = true;
    if (ptx_take(p, ".file")) return directive_file(p);
    if (ptx_take(p, ".loc")) return directive_loc(p);
    if (ptx_take(p, ".pragma")) {
        do {
            if (p->token.kind != PTX_T_STRING) return ptx_bad(p, "expected a string");
            ptx_step(p);
        } while (ptx_take(p, ","));
        return ptx_need(p, ";");
    }
    if (ptx_take(p, ".section")) {
        while (!ptx_is(p, "{") && p->token.kind != PTX_T_END) ptx_step(p);
        int depth = 0;
        do {
            if (ptx_is(p, "{")) depth++;
            if (ptx_is(p, "}")) depth--;
            if (p->token.kind == PTX_T_END) return ptx_bad(p, "section without an end");
            ptx_step(p);
        } while (depth);
        return OK;
    }
    *known = false;
    return OK;
}

void ptx_loc_text(const PtxModule *m, const PtxLoc *loc, Text *text) {
    if (!loc || !loc->line) return;
    const char *closing = "";
    for (const PtxLoc *l = loc; l; l = l->inlined) {
        const char *file = l->file < m->n_files && m->files[l->file] ? m->files[l->file] : "?";
        const char *slash = strrchr(file, '/');
        text_printf(text, "%s%s:%u", l == loc ? "" : l == loc->inlined ? " (inlined at " : ", ",
                    slash ? slash + 1 : file, l->line);
        if (l != loc) closing = ")";
    }
    text_add(text, closing);
}

/* functions ----------------------------------------------------------------------------------- */

static Status parameters(PtxParser *p, PtxVar ***list, uint32_t *n, uint32_t *cap) {
    TRY(ptx_need(p, "("));
    while (!ptx_is(p, ")")) {
        PtxSpace space = PTX_PARAM;
        if (ptx_take(p, ".reg")) space = PTX_REG;
        else TRY(ptx_need(p, ".param"));
        PtxVar *v;
        TRY(ptx_declaration(p, &v));
        v->space = space;
        v->index = *n;
        *ARENA_PUSH(p->arena, *list, *n, *cap) = v;
        if (!ptx_take(p, ",")) break;
    }
    return ptx_need(p, ")");
}

static Status three(PtxParser *p, uint32_t to[3]) {
    to[0] = to[1] = to[2] = 1;
    for (int k = 0; k < 3; k++) {
        uint64_t v;
        TRY(ptx_integer(p, &v));
        if (v > 1u << 20) return ptx_bad(p, "too large");
        to[k] = (uint32_t)v;
        if (!ptx_take(p, ",")) break;
    }
    return OK;
}

// [(returns)] name [(parameters)] and performance directives.
Status ptx_function_head(PtxParser *p, PtxFunc *f, bool is_prototype) {
    f->line = p->token.line;
    if (ptx_is(p, "(")) TRY(parameters(p, &f->rets, &f->n_rets, &f->cap_rets));
    if (p->token.kind != PTX_T_NAME) return ptx_bad(p, "expected the name of a function");
    f->name = ptx_text(p);
    if (ptx_is(p, "(")) TRY(parameters(p, &f->params, &f->n_params, &f->cap_params));
    while (p->token.kind == PTX_T_DIRECTIVE) {
        uint32_t v[3];
        if (ptx_take(p, ".noreturn")) {
            f->noreturn = true;
        } else if (is_prototype) {
            return ptx_bad(p, "unknown directive of a prototype");
        } else if (ptx_take(p, ".maxntid")) {
            TRY(three(p, f->maxntid));
        } else if (ptx_take(p, ".reqntid")) {
            TRY(three(p, f->reqntid));
        } else if (ptx_take(p, ".minnctapersm")) {
            TRY(three(p, v));
            f->min_ctas = v[0];
        } else if (ptx_take(p, ".maxnreg") || ptx_take(p, ".maxnctapersm")) {
            TRY(three(p, v));
        } else if (ptx_take(p, ".explicitcluster")) {
            f->explicit_cluster = true;
        } else if (ptx_take(p, ".reqnctapercluster")) {
            TRY(three(p, f->cluster));
        } else if (ptx_take(p, ".maxclusterrank")) {
            TRY(three(p, v));
            f->max_cluster = v[0];
        } else if (ptx_take(p, ".blocksareclusters") || ptx_take(p, ".noinline")) {
            continue;
        } else if (ptx_is(p, ".pragma")) {
            bool known;
            TRY(ptx_directive(p, &known));
        } else {
            return ptx_bad(p, "unknown directive of a function");
        }
    }
    return OK;
}

static Status function(PtxParser *p, bool is_entry, bool is_extern, bool visible, bool weak) {
    PtxFunc *f = ARENA_NEW(p->arena, PtxFunc);
    f->is_entry = is_entry;
    f->is_extern = is_extern;
    f->visible = visible;
    f->weak = weak;
    TRY(ptx_function_head(p, f, false));
    *ARENA_PUSH(p->arena, p->module->funcs, p->module->n_funcs, p->module->cap_funcs) = f;
    if (ptx_take(p, ";")) return OK;
    PtxFunc *other = NULL;
    for (uint32_t i = 0; i + 1 < p->module->n_funcs; i++)
        if (!strcmp(p->module->funcs[i]->name, f->name) && p->module->funcs[i]->has_body)
            other = p->module->funcs[i];
    if (other) return ptx_bad(p, "function '%s' is defined twice", f->name);
    f->has_body = true;
    p->func = f;
    p->loc = NULL;
    Status status = ptx_body(p);
    p->func = NULL;
    return status;
}

static Status linked(PtxParser *p) {
    bool visible = false, is_extern = false, weak = false;
    for (;;) {
        if (ptx_take(p, ".visible")) visible = true;
        else if (ptx_take(p, ".extern")) is_extern = true;
        else if (ptx_take(p, ".weak") || ptx_take(p, ".common")) weak = true;
        else break;
    }
    if (ptx_take(p, ".entry")) return function(p, true, is_extern, visible, weak);
    if (ptx_take(p, ".func")) return function(p, false, is_extern, visible, weak);
    PtxSpace space = PTX_GENERIC;
    if (ptx_take(p, ".global")) space = PTX_GLOBAL;
    else if (ptx_take(p, ".shared")) space = PTX_SHARED;
    else if (ptx_take(p, ".const")) space = PTX_CONST;
    else return ptx_bad(p, "expected a directive of a module");
    PtxVar *v;
    TRY(ptx_declaration(p, &v));
    v->space = space;
    v->visible = visible;
    v->is_extern = is_extern;
    v->weak = weak;
    if (ptx_find_var(p->module, v->name)) return ptx_bad(p, "'%s' is declared twice", v->name);
    v->index = p->module->n_vars;
    *ARENA_PUSH(p->arena, p->module->vars, p->module->n_vars, p->module->cap_vars) = v;
    return ptx_need(p, ";");
}

// Versions of the newest major one read alike, later ones included: what an instruction or a modifier
// that came with them asks for is refused where it stands.
static Status version(PtxParser *p) {
    double v; // 9.0 is read as a decimal float
    memcpy(&v, &p->token.bits, 8);
    if (p->token.kind != PTX_T_FLOAT || !(v >= 1)) return ptx_bad(p, "expected a version");
    if (v >= PTX_NEWEST / 10 + 1)
        return ptx_bad(p, "PTX ISA %g is not known; the newest that is known is %d.%d\n  hint: an older"
                          " toolkit, or one of %d.x", v, PTX_NEWEST / 10, PTX_NEWEST % 10, PTX_NEWEST / 10);
    p->module->version = (int)(v * 10 + 0.5);
    ptx_step(p);
    return OK;
}

static Status header(PtxParser *p) {
    while (p->token.kind != PTX_T_END) {
        bool known;
        TRY(ptx_directive(p, &known));
        if (known) continue;
        if (ptx_take(p, ".version")) {
            TRY(version(p));
        } else if (ptx_take(p, ".target")) {
            p->module->target = ptx_text(p);
            while (ptx_take(p, ",")) ptx_step(p); // texmode_independent, debug
        } else if (ptx_take(p, ".address_size")) {
            uint64_t bits;
            TRY(ptx_integer(p, &bits));
            if (bits != 64) return ptx_bad(p, "only 64-bit addresses are supported");
        } else {
            if (!p->module->version || !p->module->target)
                return ptx_bad(p, "expected .version and .target first");
            TRY(linked(p));
        }
    }
    if (!p->module->version || !p->module->target)
        return ptx_bad(p, "expected .version and .target");
    return OK;
}

Status ptx_parse(Arena *arena, const char *text, size_t n, PtxModule **module) {
    if (n && !text[n - 1]) n = strnlen(text, n);
    PtxParser parser = { .arena = arena, .module = ARENA_NEW(arena, PtxModule),
                         .lexer = { text, text + n, 1 } };
    ptx_step(&parser);
    TRY(header(&parser));
    *module = parser.module;
    return OK;
}
