// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences, all in float64 through the interpreter.
//
// d(h) = (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h errs by h^4 f'''''/30 plus rounding, about
// 1e-16 |f| / h. With h = 1e-4 the first is below 1e-14 for derivatives below 1e3 and the second 1e-12 |f|.
// Routes and other choices (top_k) and stopped gradients are held at their values at x (Interp.hold); a
// comparison of reals flips with probability about 1e-4 per element, and seeds are fixed.
//
// The bound is 1e-8 of the parameter's largest gradient plus 1e-10 (1 + |f|), for gradients that are zero
// or nearly so. Both are about 100 times the error estimated above: sums of some hundred terms in f round
// that much more. Where that fails the step is shortened to 1e-5 and 1e-6, for kinks. Rounding to bf16 is held like a
// choice, so it needs no other bound.
#ifndef MOEC_TEST_PROBE_H
#define MOEC_TEST_PROBE_H

#include "tests/oracle/compare.h"

typedef struct Probe {
    Interp *in;    // evaluates the scalar
    uint32_t node; // the scalar, or 0: in->loss
    const Step *step;
    double worst; // largest error / bound so far
    char where[160];
    int64_t entries;
} Probe;

double probe_scalar(Probe *p);
// Compares `gradient` of parameter `param` with differences, at all entries or `samples` of them; f is
// the scalar at x.
void probe(Probe *p, uint32_t param, const double *gradient, int samples, double f);
// All parameters: gradients of the program `step` against differences of the traced graph's loss. Also
// that the program's records are the traced graph's losses.
Probe probe_model(Model *m, Interp *in, const Step *step, int samples);

#endif
