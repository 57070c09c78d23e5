// SPDX-License-Identifier: Apache-2.0
// One-operation graphs over odd shapes, shared by the tests of adjoints and of lowered kernels.
//
// A case builds a node y from leaves that depend on parameters; case_model turns it into a model whose
// only loss is sum(y * c) with fixed random numbers c of y's type, so every entry of y's gradient counts.
#ifndef MOEC_TEST_CASES_H
#define MOEC_TEST_CASES_H

#include "compiler/model/model.h"

typedef struct Case {
    const char *name;
    uint32_t (*build)(Model *m, int a, int b); // y; 0 with m->diag when it does not fit
    int a, b;                                  // arguments of build
    bool positive;                             // parameters in about [0.6, 2.4]: log, sqrt, pow, ...
    double limit;                              // fp32: norm-wise relative bound of y's and gradients' error
} Case;

extern const Case cases[];
extern const int n_cases;

// fp32 bounds, by what an operation does (u = 2^-24 = 6e-8), with room for the row sums around it:
//   LIMIT_MAP     a few roundings per element, sums of at most 78 rows whose errors mostly cancel: about 10 u
//   LIMIT_MATH    exp, log, tanh, ... of the prelude: up to 4 ulp each, and arguments up to 8 amplify by 8
//   LIMIT_SUM     contractions and softmax over at most 64 products: 64 u = 3.8e-6
#define LIMIT_MAP 3e-6
#define LIMIT_MATH 1e-5
#define LIMIT_SUM 4e-6

enum { CASE_VOCAB = 7, CASE_EXPERTS = 5, CASE_TOP_K = 3 };

// A model with nothing in it; adds a case, whose parameters are "NAME.p0", ... and whose loss is "NAME".
Model *case_start(const char *name, int32_t sequence);
bool case_add(Model *m, const Case *c);             // false: printed why
Model *case_model(const Case *c, int32_t sequence); // both; NULL: printed why
bool case_owns(const Case *c, const char *address); // is it the loss's or a parameter's address?
// A value of that row axis which depends on a new parameter; the route of all cases.
uint32_t case_leaf(Model *m, RowKind row, const int32_t *dims, int rank);
uint32_t case_param(Model *m, bool is_state, const int32_t *dims, int rank, uint32_t route);
uint32_t case_route(Model *m);
// Scalar sum(y * c). `name` makes c's numbers.
uint32_t scalar_of(Model *m, uint32_t y, const char *name);
void add_loss(Model *m, const char *name, uint32_t node, double weight);

#endif
