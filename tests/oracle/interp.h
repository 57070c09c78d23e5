// SPDX-License-Identifier: Apache-2.0
// A float64 interpreter of the Model graph: the meaning of compiler/model/ops.h, written once more.
//
// One node at a time, every value stored whole, plain loops over explicit indices. It reads the graph's
// types, attributes and operands and shares nothing else with the project: no shape rule, no adjoint, no
// template, no row program. All kinds (real, int, bool) are doubles; ints below 2^53 are exact.
//
// Invariants: operands precede their users (id order); R values have exactly the rows that exist; nodes
// that depend on `total` are evaluated once, after the last microbatch of the step.
#ifndef MOEC_TEST_INTERP_H
#define MOEC_TEST_INTERP_H

#include "compiler/model/model.h"

enum { INTERP_AHEAD = 6 };             // tokens(0..5), labels(0..5)
enum { TEST_SEED = 7, TEST_STEP = 3 }; // what `uniform` hashes, here and in the executor's scalars

// What a data loader would hand over for one microbatch. `valid` and the counts follow from labels[1].
typedef struct Batch {
    int64_t tokens, sequence;      // T; S = T / sequence
    int32_t *ahead[INTERP_AHEAD];  // ahead[k][t]: id k tokens on in the document, or -1
    int32_t *labels[INTERP_AHEAD]; // labels[k][t]: target k on, -1 where masked
    int32_t *positions, *segments, *index;
} Batch;

// Random ids below `vocab` in documents of random lengths (every sequence starts one), about one label in
// six masked. `first` is the global number of the first token. Freed by batch_free.
Batch batch_make(uint64_t seed, int64_t tokens, int64_t sequence, int32_t vocab, int32_t first);
void batch_free(Batch *batch);
int64_t batch_valid(const Batch *batch, int64_t from, int64_t to); // labels(1) >= 0 in [from, to)

typedef struct Value {
    double *x;
    int64_t rows, n;
} Value; // [rows, n]: n = product of the features

typedef struct Interp {
    const Model *m;
    uint32_t n_nodes, n_params, n_records; // when created: the graph may grow afterwards
    Value *values;                         // by node, of the last microbatch
    struct RouteMap *routes;               // by node, of route nodes
    bool *needed, *late;                   // by node
    double **params;                       // by parameter: current values, set by the caller
    int64_t *param_n;
    double **gradients; // by parameter: sum of accumulates; zeros if there is none
    double **next;      // by parameter: what `update` writes, NULL if nothing does
    bool *accumulated;  // by parameter: is there an accumulate?
    Value *records;     // by slot of m->records: summed over microbatches
    Value outputs[4];
    double *losses; // traced graphs: by m->losses, reduced over the step, not weighted
    double loss;    // sum of weight * losses
    uint32_t seed, step;
    double inv_step;
    const Batch *batch; // of the microbatch being evaluated
    // Held fixed: values of top_k and stop_gradient, and the rounding error of cast, from the run before
    // `hold` was set. By microbatch, then node.
    bool hold;
    double ***held;
    int n_held;
} Interp;

Interp *interp_create(const Model *m);
void interp_destroy(Interp *in);
// Only what these nodes need is evaluated from now on. Without a call: every node.
void interp_need(Interp *in, const uint32_t *roots, int n);
// Fills parameters and states with normal numbers of standard deviation `std` (gains around 1).
void interp_fill(Interp *in, uint64_t seed, double std);
void interp_run(Interp *in, const Batch *batches, int n);

/* Used between interp.c, interp_ops.c and interp_contract.c. */

typedef struct RouteMap {
    int64_t rows, slots; // slots = tokens * top_k
    int32_t top_k, experts;
    int64_t *row_of_slot, *slot_of_row, *expert_of_row;
} RouteMap;

void interp_node(Interp *in, uint32_t id);
bool interp_contraction(Interp *in, uint32_t id); // false: not one
int64_t interp_rows(const Interp *in, const Type *type);
int64_t interp_row(const Interp *in, const Type *from, const Type *to, int64_t row);
int64_t features(const Type *type);
_Noreturn void interp_fail(const Interp *in, uint32_t id, const char *why);

#endif
