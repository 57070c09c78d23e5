// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share and nobody else needs.
#ifndef MOEC_MODEL_PRIVATE_H
#define MOEC_MODEL_PRIVATE_H

#include "compiler/model/model.h"

// A node that is not in the graph yet. `args` is its own copy: rewrites may change it in place.
typedef struct Draft {
    Op op;
    Attr attr;
    Type type;
    int n_args;
    uint32_t args[MAX_ARGS];
} Draft;

/* shape.c, shape_contract.c -------------------------------------------------------------------- */

// One shape rule at work. `out` starts zeroed, kind KIND_REAL.
typedef struct Shape {
    Model *m;
    Op op;
    const Attr *attr;
    const Type *declared;
    const uint32_t *args;
    int n_args;
    Type out;
    int n_texts;
    char texts[4][128]; // of types, for messages
} Shape;

// Fills draft->type from op, attr and args (and `declared`), or m->diag and returns false.
bool model_shape(Model *m, Draft *draft, const Type *declared);

static inline const Type *shape_arg(const Shape *s, int i) { return &s->m->nodes[s->args[i]].type; }
const char *shape_text(Shape *s, const Type *t);
// Fails: message "OP: ...", operands i and j (-1: none) to blame. Always false.
bool shape_fail(Shape *s, int i, int j, const char *format, ...) PRINTF_LIKE(4, 5);
// The row axis that operands i and j have together, into s->out.
bool shape_join_rows(Shape *s, int i, int j);
bool shape_needs_real(Shape *s, int i);
bool shape_needs_ids(Shape *s, int i);

bool shape_matmul(Shape *s);
bool shape_matmul_t(Shape *s);
bool shape_matmul_w(Shape *s);
bool shape_attend(Shape *s);
bool shape_attend_grad(Shape *s);
bool shape_embed(Shape *s);
bool shape_embed_w(Shape *s);
bool shape_shift(Shape *s);
bool shape_route(Shape *s);
bool shape_dispatch(Shape *s);
bool shape_collect(Shape *s);
bool shape_row_sum(Shape *s);
bool shape_across(Shape *s);
bool shape_total(Shape *s);
bool shape_effect(Shape *s);

/* rewrite.c ------------------------------------------------------------------------------------ */

// The node that stands for the draft, 0 if it is to be made as it is now (operands may have been
// put into canonical order).
uint32_t model_rewrite(Model *m, Draft *draft);

/* build.c -------------------------------------------------------------------------------------- */

bool op_is_consed(Op op);
bool op_is_free(Op op); // sources and generators but `total`: at hand in every part
uint32_t model_find(const Model *m, const Draft *draft); // the equal node, or 0
uint32_t model_append(Model *m,
                      const Draft *draft); // with m's loc, addr and part; consed if the op is
void model_cons_rebuild(Model *m);         // after ids changed
bool model_is_const(const Model *m, uint32_t id, double value);

/* programs.c ----------------------------------------------------------------------------------- */

// Into a new model: names, files, numbers, parameters (their nodes 0), sizes.
void model_copy_tables(Model *to, const Model *from);

/* print.c -------------------------------------------------------------------------------------- */

void type_format(const Model *m, const Type *t, char *out, size_t bytes);
extern const char *const kind_name[];
extern const char *const row_name[]; // "tokens", for messages

#endif
