// SPDX-License-Identifier: Apache-2.0
// The exact search for a layout: the fastest of all layouts that fit, with a certificate.
//
// A layout is a *point* (axes, microbatch, schedule, precision, where parameters live, transport,
// capacity, overlap, placement), a *split* of the layers into stages, and what each layer recomputes.
// What a layer costs follows from a SearchChoice, which is the point without its schedule; so the search
// only adds and compares. Per microbatch a layer takes t (forward, backward, what it computes again), and
// of that w, its gradients of weights, can wait where the schedule is zero bubble. Then
//
//   fill(layer) = t, or max(0, t - 2 w) for zero bubble      alone on the way through the pipeline
//   T = max over ranks of (m * sum t + sum step - sum fill / v + m * v * sent)  +  (sum of all fill) / v
//       + 2 (pp - 1) * send
//
// (where ranks share cores, SearchProfile.sharing, the larger of T / sharing and the mean over ranks of m * sum t + sum step)
// with m microbatches, v virtual stages a rank; every rank works m times and, beside that, waits while one
// microbatch passes the others. With v = 1 and 1f1b that is the known sum(t) + (m - 1) max(t).
// Memory of a rank: fixed + state of its layers + in flight * saved + what crosses stages + the largest transient, or
// fixed + state + the most that the end of the step takes.
// In zero bubble a microbatch keeps what its gradients of weights read after backward, too. In flight are addresses, of
// which there may be more than microbatches at once (flight.c): what is sent stays until its place is sent from again.
//
// All layouts of a point are decided at once, exactly: recomputation by frontiers of seconds and bytes
// (frontier.c), splits by dynamic programming (split.c). Points are taken best bound first (search.c) until
// the next bound is no better than the k-th best layout. Bounds leave out constraints, never add cost.
//
// Plain schedules take any contiguous split. Interleaved ones take splits that are even but for up to
// SEARCH_MOST_GIVEN layers less in the first and in the last virtual stage.
#ifndef MOEC_SEARCH_H
#define MOEC_SEARCH_H

#include "compiler/layout/pipeline.h"
#include "compiler/search/simulate.h"

/* What is searched ----------------------------------------------------------------------------- */

enum {
    SEARCH_RECOMPUTES = 3, // LayoutRecompute
    SEARCH_MOST_CLASSES = 16,
    SEARCH_MOST_LISTED = 8, // values of a listed field
    SEARCH_MOST_GIVEN = 3,
    SEARCH_MOST_TOP = 256,
    SEARCH_MOST_LAYERS = 512,
    SEARCH_MOST_STAGES = 512, // pp
    SEARCH_MOST_CHUNKS = 16,
};

// What a layer's cost follows from.
typedef struct SearchChoice {
    int32_t pp, dp, ep, microbatch; // microbatch in sequences
    uint8_t precision;              // of the lists of the space: values, not indices
    uint8_t params, expert_params;  // LayoutParams
    uint8_t transport;              // LayoutTransport
    uint8_t overlap;                // 0: compute waits for what ranks say to each other; 1: it does not, and what
                                    // is gathered ahead takes memory. 1 where nothing is gathered
    uint8_t placement;              // number of the list of the space: 0 experts in order, 1 as given, ...
    int32_t row_align;              // Layout.row_align; not searched
    double capacity;                // 0: the spec's; INFINITY: no row is dropped
    double round;                   // where none is: rows of a rank in one round over the even share; INFINITY, or
                                    // ep and more: all at once
} SearchChoice;

// One layer of a class on one rank; by LayoutRecompute where that matters, INFINITY seconds where a layer
// cannot. All bytes are at the load that memory must hold.
typedef struct SearchLayer {
    double seconds[SEARCH_RECOMPUTES];   // of a microbatch: forward, backward, recomputation, what of ranks
                                         // talking is not hidden
    double wgrad_s;                      // of that, gradients of weights
    double forward_s;                    // of that, forward; for the simulator only
    double step_s;                       // once a step: exchange, update
    double state_bytes;                  // as long as the run
    double saved_bytes[SEARCH_RECOMPUTES]; // of a microbatch between its forward and backward
    double transient_bytes[SEARCH_RECOMPUTES]; // most besides while the layer runs
    // In zero bubble: of a microbatch between backward and gradients of weights; most besides the larger of both.
    double wait_bytes[SEARCH_RECOMPUTES], late_bytes[SEARCH_RECOMPUTES];
    double both_bytes[SEARCH_RECOMPUTES]; // of what waits, what forward has saved
    double update_bytes;                 // most at the end of a step, when nothing is kept or computed
} SearchLayer;

// What those seconds are, by kind of a waterfall (simulate.h): of a microbatch in each PipelineKind of unit, and of
// what is due once a step.
typedef struct SearchWork { double unit_s[N_PIPELINE_KINDS][N_SIM_KINDS], step_s[N_SIM_KINDS]; } SearchWork;

// What is no layer's.
typedef struct SearchRest {
    double send_s;         // a microbatch from one stage to the next, one way
    double sent_s;         // of that, both ways, what a virtual stage cannot hide of each microbatch
    double boundary_bytes; // a virtual stage's input of a microbatch, and the gradient of it
    double fixed_bytes;    // contexts, transports
} SearchRest;

// A model on a cluster. Parts: 0 .. n_classes - 1 classes of layers; n_classes: what precedes the layers,
// n_classes + 1: what follows them (of these two only the first recompute counts).
typedef struct SearchProfile {
    int32_t n_layers, n_classes;
    const uint8_t *class_of;       // [n_layers]
    const int32_t *experts;        // numbers of experts that ep divides
    int32_t n_experts;             // 0: no layer has experts
    double capacity;               // what the spec says; INFINITY: no row is dropped
    double sharing;                // CostDevice.sharing; below 1: 1
    // False: the choice is impossible. A pure function of its arguments; none of it negative.
    bool (*part)(const void *user, const SearchChoice *choice, int32_t part, SearchLayer *out);
    bool (*rest)(const void *user, const SearchChoice *choice, SearchRest *out);
    // By kind, with one LayoutRecompute that `part` offers. NULL: the profile does not tell kinds apart.
    bool (*work)(const void *user, const SearchChoice *choice, int32_t part, int recompute, SearchWork *out);
    const void *user;
} SearchProfile;

typedef struct SearchSpace {
    int64_t ranks;
    int64_t sequences;             // of a step, over all ranks
    int64_t memory_bytes;          // of a rank
    int32_t most_pp, most_chunks, most_microbatch; // 0: 512, 16, 64
    uint8_t schedules, params, expert_params, transports, overlaps, recomputes; // sets: bit i for value i;
                                   // 0: all (overlaps: 0 and 1)
    int32_t placements;            // how many; 0: one
    uint8_t precisions[SEARCH_MOST_LISTED]; int32_t n_precisions; // at least one
    double capacities[SEARCH_MOST_LISTED];  int32_t n_capacities; // 0: the spec's alone
    double rounds[SEARCH_MOST_LISTED];      int32_t n_rounds;     // 0: all at once alone
} SearchSpace;

/* count.c: exact whole numbers of layouts ------------------------------------------------------- */

enum { SEARCH_COUNT_LIMBS = 48 };
typedef struct SearchCount { uint32_t limb[SEARCH_COUNT_LIMBS]; } SearchCount; // lowest first; 1536 bits
SearchCount search_count(uint64_t n);
void search_count_add(SearchCount *sum, const SearchCount *more);
void search_count_subtract(SearchCount *from, const SearchCount *less); // not below 0
void search_count_times(SearchCount *count, uint32_t factor);
SearchCount search_count_choose(int32_t n, int32_t k);   // binomial coefficient
SearchCount search_count_power(uint32_t base, int32_t exponent);
bool search_count_equal(const SearchCount *a, const SearchCount *b);
double search_count_double(const SearchCount *count);
void search_count_print(const SearchCount *count, Text *out); // digits, in threes: "1 234 567"

/* search.c -------------------------------------------------------------------------------------- */

typedef struct SearchPoint {
    SearchChoice choice;
    uint8_t schedule;
    int32_t chunks, microbatches; // microbatches of a rank in a step
} SearchPoint;

// But for what is not searched.
bool search_same_point(const SearchPoint *a, const SearchPoint *b);

typedef struct SearchLayout {
    SearchPoint point;
    int32_t *stages;      // [pp * chunks] layers
    uint8_t *recompute;   // [n_layers]
    double step_s;
    double bound_s;       // that the point was taken for
    double played_s;      // by search_play, where somebody has asked; else 0
    double *stage_bytes;  // [pp] most of each rank
    double peak_bytes;
    int32_t number;       // of the point in the order of the space
} SearchLayout;

typedef struct SearchCertificate {
    SearchCount layouts;       // all that there are
    SearchCount cut_memory;    // of points that cannot fit
    SearchCount cut_bound;     // of points that cannot be better
    SearchCount decided;       // of points whose best layout was found, or that none fits
    SearchCount open;          // of points that were left when the search was stopped
    int64_t points, points_memory, points_bound, points_decided, points_open;
    int64_t choices;           // for which costs were asked
    double lower_s;            // no layout is faster
    double gap;                // best / lower_s - 1; 0: proved
    bool complete;
} SearchCertificate;

typedef struct SearchFound {
    SearchLayout *best; int32_t n; // fastest first, one of each point; equal ones by number
    SearchCertificate certificate;
} SearchFound;

// Called now and then; false: stop with the best so far. `best_s` is INFINITY before there is one.
typedef bool (*SearchPulse)(void *user, int64_t decided, int64_t points, double best_s, double lower_s);

typedef struct Search Search;
// Counts and bounds every point. ERR_ARGUMENT: there is none, and which rule leaves none.
Status search_create(const SearchProfile *profile, const SearchSpace *space, Search **out);
// Without the points: for search_point, search_layout and search_bound only.
Status search_create_bare(const SearchProfile *profile, const SearchSpace *space, Search **out);
void search_destroy(Search *search);
void search_on_pulse(Search *search, SearchPulse pulse, void *user);
// The `top` fastest points with memory for `memory_bytes` a rank. Results live in `arena`.
void search_run(Search *search, double memory_bytes, int32_t top, Arena *arena, SearchFound *out);
// Fastest layouts for less and less memory: each for a `steps`-th less than the one before takes, and at
// most an even share of `memory_bytes`. Fastest first.
typedef struct SearchFront { SearchLayout *at; int32_t n; } SearchFront;
void search_front(Search *search, double memory_bytes, int32_t steps, Arena *arena, SearchFront *out);

typedef enum SearchVerdict { VERDICT_FITS, VERDICT_MEMORY, VERDICT_IMPOSSIBLE } SearchVerdict;
typedef struct SearchEvaluated {
    SearchVerdict verdict;
    SearchLayout layout;   // with the fewest bytes where it does not fit
    double short_bytes;    // of the fullest rank
} SearchEvaluated;
// The best layout of a point; microbatches are found from the rest.
void search_point(Search *search, const SearchPoint *point, double memory_bytes, Arena *arena,
                  SearchEvaluated *out);
// Of one layout as it stands: seconds and bytes. `stages` and `recompute` are given.
void search_layout(Search *search, SearchLayout *layout, double memory_bytes, Arena *arena,
                   SearchEvaluated *out);
// Lower bound of a point's seconds, as the search uses it; INFINITY: it cannot fit.
double search_bound(Search *search, const SearchPoint *point, double memory_bytes);
// The layout of compiler/layout; what it has no field for (precision, placement) is left out.
Layout search_to_layout(const SearchLayout *found, const SearchProfile *profile, Arena *arena);
// The other way round, for a model of `n_layers`. A step's microbatches are left out. Stages are as even as can be and
// layers recompute alike where the layout does not say.
SearchLayout search_from_layout(const Layout *layout, uint8_t precision, int32_t n_layers, Arena *arena);

/* play.c: a layout in the simulator --------------------------------------------------------------- */

// Seconds of a layout's step: of its first microbatches, and of the others as much as the last of these take. NAN: it
// cannot be played.
double search_play(const SearchProfile *profile, const SearchLayout *layout);
// The same costs as what simulate() takes, with receives that are posted: a stage for each of pp, all microbatches; for
// each unit of the pipeline (segments "forward", "backward", "wgrad"; then "update") an op per kind, if the profile
// tells them apart, which take what one would. ERR_ARGUMENT: stages do not hold the model's layers, or the profile has
// no costs for the layout.
Status search_stages(const SearchProfile *profile, const SearchLayout *layout, Arena *arena, SimStage **stages);

#endif
