// SPDX-License-Identifier: Apache-2.0
// Curves through measured points, and the names of the tables of cost.h.
#include <math.h>

#include "compiler/cost/cost.h"

const char *const cost_evidence_name[N_EVIDENCES] = {
#define X(name, text) text,
    COST_EVIDENCES(X)
#undef X
};
const char *const cost_collective_name[N_COLLECTIVES] = {
#define X(name) #name,
    COST_COLLECTIVES(X)
#undef X
};
const char *const cost_class_name[N_COST_CLASSES] = {
#define X(name) #name,
    COST_CLASSES(X)
#undef X
};

double cost_evidence_error(CostEvidence evidence) {
    static const double error[N_EVIDENCES] = { 0.05, 0.10, 0.20, 0.30 };
    return error[evidence];
}

// Between points i and i + 1.
static double between(const CostCurve *c, int i, double x) {
    double t = log(x / c->x[i]) / log(c->x[i + 1] / c->x[i]);
    return c->y[i] * exp(t * log(c->y[i + 1] / c->y[i]));
}

double cost_curve(const CostCurve *c, double x) {
    if (!c->n) return 0;
    if (x <= c->x[0]) return c->y[0];
    for (int i = 0; i + 1 < c->n; i++) {
        if (x <= c->x[i + 1]) return between(c, i, x);
    }
    return c->y[c->n - 1];
}

double cost_curve_s(const CostCurve *c, double x) {
    if (!c->n || x <= 0) return 0;
    double last = c->x[c->n - 1];
    return x > last ? c->y[c->n - 1] * x / last : cost_curve(c, x);
}
