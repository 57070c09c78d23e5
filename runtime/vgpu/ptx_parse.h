// SPDX-License-Identifier: Apache-2.0
// Shared by the two halves of the parser: declarations (ptx_parse.c) and bodies (ptx_body.c).
#ifndef MOEC_VGPU_PTX_PARSE_H
#define MOEC_VGPU_PTX_PARSE_H

#include "runtime/vgpu/ptx.h"

// Names of one { }. A `.reg .b32 %r<9>` is one range; its variables are made when first named.
typedef struct PtxRange {
    const char *prefix;
    size_t n_prefix;
    uint32_t count;
    PtxType type;
    PtxVar **vars;
} PtxRange;
typedef struct PtxName { const char *name; PtxVar *var; int32_t label; } PtxName;
typedef struct PtxScope PtxScope;
struct PtxScope {
    PtxScope *parent;
    PtxRange *ranges;
    uint32_t n_ranges, cap_ranges;
    PtxName *slots; // open addressing, power of two
    uint32_t n_names, n_slots;
};

typedef struct PtxParser {
    Arena *arena;
    PtxModule *module;
    PtxLexer lexer;
    PtxToken token;        // the one to look at
    PtxFunc *func;         // being parsed, or NULL
    PtxScope *scope;
    PtxScope **instr_scope; // per instruction of func: where its labels are looked up
    uint32_t n_instr_scope, cap_instr_scope;
    const PtxLoc *loc;
    uint32_t cap_files;
    int depth;             // of nested operands and scopes
} PtxParser;

void ptx_step(PtxParser *p);
bool ptx_is(const PtxParser *p,
            const char *text); // the token is this punctuation, name or directive
bool ptx_take(PtxParser *p, const char *text);         // and is consumed
Status ptx_need(PtxParser *p, const char *text);
Status ptx_bad(PtxParser *p, const char *format, ...) PRINTF_LIKE(2, 3);
char *ptx_text(PtxParser *p);                          // of the token, in the arena; consumes it
Status ptx_integer(PtxParser *p, uint64_t *value);     // constant expression
Status ptx_declaration(PtxParser *p,
                       PtxVar **var); // after .global, .param...: up to before ; or , or )
Status ptx_directive(PtxParser *p, bool *known);       // .file .loc .pragma .section
Status ptx_function_head(PtxParser *p, PtxFunc *func, bool is_prototype);
Status ptx_body(PtxParser *p);                         // from { to }
PtxVar *ptx_lookup(PtxParser *p, const char *name);    // in the scopes, then the module
PtxName *ptx_declare(PtxParser *p, PtxScope *scope, const char *name, bool *again);

#endif
