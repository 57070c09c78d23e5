// SPDX-License-Identifier: Apache-2.0
// What a search asks of a model, answered by the cost model: a SearchProfile over a CostProfile.
#ifndef MOEC_SEARCH_COSTED_H
#define MOEC_SEARCH_COSTED_H

#include "compiler/cost/profile.h"
#include "compiler/search/placed.h"
#include "compiler/search/search.h"

enum { COSTED_PLANS = 4 * 2 * 2 };

typedef struct Costed {
    const CostProfile *profile;
    const CostCluster *cluster;
    CostStack stack;
    uint8_t routing;           // CostRouting
    // Whether there are plans of such choices (profile_plans), asked once for each precision, transport and whether
    // rows come in rounds; others are impossible. NULL: all are taken.
    bool (*plans)(const CostProfile *profile, const CostChoice *choice);
    uint8_t *plans_known;      // [COSTED_PLANS] 0: not asked yet
    Placed *placed;            // loads that were recorded; NULL: none. A choice's placement 1 is by them
    double load;               // times what the imbalance is expected to be over even; 1
    // Share of what crosses ranks that runs beside compute where a choice has overlap: of parameters and
    // gradients, of rows. Sends between stages are hidden then.
    double params_hidden, rows_hidden;
    bool any_transport;        // rows one by one between nodes, and blocks within one, too; else they are impossible
    // Filled in by costed_start.
    uint8_t class_of[SEARCH_MOST_LAYERS];
    int32_t experts[1];
} Costed;

// A profile of which *costed, which outlives it, is the user. Other fields than class_of and experts are set.
// ERR_ARGUMENT: more layers or kinds of them than a search takes.
Status costed_start(Costed *costed, SearchProfile *out);

// Where the seconds of a layout's step go, on the rank that decides them, in the words of runtime/plan/timeline.h;
// they add up to step_s.
#define COSTED_KINDS(X)                                                                            \
    X(dense, "dense GEMM") X(experts, "expert GEMM") X(attention, "attention")                     \
    X(memory, "memory-bound") X(again, "computed again") X(rows, "rows to experts, exposed")       \
    X(params, "gather and exchange, exposed") X(sends, "between stages") X(bubble, "bubble")       \
    X(imbalance, "imbalance") X(optimizer, "optimizer")
typedef enum CostedKind {
#define X(name, text) COSTED_##name,
    COSTED_KINDS(X)
#undef X
    N_COSTED_KINDS
} CostedKind;
extern const char *const costed_kind_name[N_COSTED_KINDS];

typedef struct CostedStep {
    double seconds[N_COSTED_KINDS];
    int32_t rank;              // the stage that decides
    double flops;              // of the model, of a step, all ranks
} CostedStep;
void costed_step(const Costed *costed, const SearchLayout *layout, CostedStep *out);

// Memory of a rank of a stage by what it is for.
#define COSTED_BYTES(X)                                                                            \
    X(state, "weights and optimizer") X(saved, "kept for backward") X(transient, "while computing") \
    X(fixed, "contexts")
typedef enum CostedBytes {
#define X(name, text) COSTED_BYTES_##name,
    COSTED_BYTES(X)
#undef X
    N_COSTED_BYTES
} CostedBytes;
extern const char *const costed_bytes_name[N_COSTED_BYTES];
// bytes[stage]; adds up to stage_bytes.
void costed_bytes(const Costed *costed, const SearchLayout *layout, double (*bytes)[N_COSTED_BYTES]);

#endif
