// SPDX-License-Identifier: Apache-2.0
// What the oracle's tests share: loading specs, carrying parameters between graphs, measuring errors.
#ifndef MOEC_TEST_COMPARE_H
#define MOEC_TEST_COMPARE_H

#include "tests/oracle/interp.h"

typedef struct Spec {
    const char *file;           // under tests/oracle/specs, or models/ when it contains a slash
    int32_t sequence;           // 0: as the spec says
    int32_t sequences, batches; // per microbatch, per step
    double std;                 // of the parameters
    double amplified;           // how much more than other models it amplifies rounding
    bool fused, alone;          // how the short test lowers it
} Spec;

extern const Spec specs[];
extern const int n_specs;
extern const Spec spec_tiny, spec_maxima; // maxima over a sequence have no kernel yet

// The traced graph, its sequence length replaced. NULL: the diagnostic was printed.
Model *spec_model(const Spec *spec);
const char *spec_title(const Spec *spec); // "olmo.lua 2 x 13"

// Random microbatches of a step with unequal numbers of valid tokens. At most 4.
typedef struct Step {
    Batch batch[4];
    int n;
} Step;
Step step_make(uint64_t seed, const Model *m, int32_t sequences, int batches);
void step_free(Step *step);

const char *param_name(const Model *m, uint32_t param);
// The parameter of the same address, or fails the test.
uint32_t param_of(const Model *m, const char *name);
// Gives `to` (the same model's other graph) the values of `from`.
void params_copy(Interp *to, const Interp *from);

double norm(const double *x, int64_t n);
double distance(const double *x, const double *y, int64_t n); // 2-norm of the difference

#endif
