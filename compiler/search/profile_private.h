// SPDX-License-Identifier: Apache-2.0
// What the files of a profile share. profile.h has what it is for, profile.c the idea.
#ifndef MOEC_SEARCH_PROFILE_PRIVATE_H
#define MOEC_SEARCH_PROFILE_PRIVATE_H

#include <math.h>

#include "compiler/kernel/kernel.h"
#include "compiler/search/profile.h"

/* Probes ----------------------------------------------------------------------------------------- */

typedef struct Grows { double stays, tokens, rows, experts; } Grows; // bytes of the probe

typedef struct PartKernel {
    CostKernel kernel;
    uint8_t pass, rows; // CostPass; RowKind
    bool packs;
    double trips, weights; // weights: of its bytes, what does not grow
} PartKernel;

typedef struct Moments { Grows *items; uint32_t n, cap; } Moments;

typedef struct ProbePart {
    PartKernel *kernels;
    uint32_t n_kernels, cap_kernels;
    Grows saved[2], waits[2], both[2]; // both: saved and waiting
    Moments moments[2], late[2]; // by region: act, sym; late: where what waits stays
} ProbePart;

typedef struct Probe {
    bool made, refused;
    ProbePart *parts; // [classes + 2]
    double rows;      // of experts, on this rank
} Probe;

enum { KEYS = 2 * 3 * 2 * 4 * 2 }; // fp32 or bf16; recomputation; experts elsewhere or here; what is gathered; ahead?

typedef struct Memo { int32_t part; CostChoice choice; bool possible; CostPart value; } Memo;

// A model with fewer layers, or the model itself; and by class the layer of it that stands for the class. graphs: of its
// step, one for each number of ranks that probes have (layout_of), made when first asked for.
enum { GRAPHS = 2 * 2 /* experts elsewhere or here; anything gathered? */, MOST_MADE = 2 * (1 + GRAPHS) };
typedef struct Few { Model *model; int32_t *middle; Model *graphs[GRAPHS]; } Few;

// What rotary positions with a factor turn: numbers of a token, in how many tensors.
typedef struct Turned { double numbers, tensors; } Turned;

typedef struct Profile {
    CostProfile base;
    Model *model;
    const CostCluster *cluster;
    Arena *arena;
    bool whole;                 // probes are of all layers
    int32_t *class_of, *middle; // [layers]; [classes]: the middle one of its layers
    uint64_t *looks;            // [layers]: of all kernels of forward, where classes go by products
    Few few[2];                 // what is probed; [1] where dense parameters are gathered. No model: not made yet
    Model *made[MOST_MADE]; int32_t n_made; // what of these is this profile's to destroy
    double *experts;            // [classes + 2]: of its layer
    CostPart *parameters;       // [classes + 2]: numbers, experts' of all ranks
    Turned *turned;             // [classes + 2]
    const char *target;
    Probe probes[KEYS];
    Memo *memo;
    uint32_t n_memo, cap_memo;
} Profile;

/* profile.c: what follows for a choice ----------------------------------------------------------- */

typedef struct Scale {
    double tokens;     // over the probe's
    double room, rows; // rows of experts over the probe's: that there is room for; that the busiest rank has
    double even;       // that an even load would be
    double groups;     // experts of a rank
    double experts;    // of these over the probe's
    double load, n_tokens, pads; // pads: rows with them over rows without
    // Where rows come in rounds, shares of what the busiest rank has: of the first round, of each of `further` ones.
    double first, each, further;
} Scale;

// CostProfile.part.
bool profile_part(const CostProfile *base, int32_t part, const CostChoice *choice, CostPart *out);

/* profile_probe.c ------------------------------------------------------------------------------- */

// What lowering has told of a step, in order.
typedef struct SeenKernel {
    ProbeKernel at;
    CostKernel cost;
    uint8_t rows;      // RowKind by which it grows
    bool packs;
    double weights;    // of its bytes, what does not grow
} SeenKernel;
typedef struct Seen {
    const Profile *p;
    const Few *few;
    Arena *scratch;
    SeenKernel *kernels; uint32_t n_kernels, cap_kernels;
    ProbeBuffer *buffers; uint32_t n_buffers, cap_buffers;
    double expert_rows;
} Seen;

// Made when first asked for; may be refused.
const Probe *profile_probe(Profile *profile, const CostChoice *choice);
// Of ep, where a probe has experts on other ranks.
int32_t profile_ranks(const Profile *profile);

/* profile_memory.c ------------------------------------------------------------------------------ */

// Saved bytes and moments of all parts, in `arena`.
void profile_see_memory(const Seen *seen, Arena *arena, Probe *probe);
// The bytes of *out.
void profile_memory(const Profile *profile, const ProbePart *from, int32_t part, const CostChoice *choice,
                    const Scale *scale, CostPart *out);

/* profile_model.c: the model's layers ------------------------------------------------------------ */

// The part that a layer stands for, or -1: another of its class does.
static inline int32_t part_of(const Profile *p, const int32_t *middle, int32_t layer) {
    if (layer < 0) return cost_part_before(&p->base);
    if (layer >= p->base.n_layers) return cost_part_after(&p->base);
    int32_t class = p->class_of[layer];
    return middle[class] == layer ? class : -1;
}
// What is probed for a choice, made when first asked for.
Few *profile_few(Profile *profile, const CostChoice *choice);

#endif
