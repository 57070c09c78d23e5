// SPDX-License-Identifier: Apache-2.0
// What the passes of lowering share: the state of one program on its way from graph to plan.
//
// Vocabulary. A *unit* is the smallest piece of work that a kernel can take over: a node to
// compute, a node to store as it is seen (a view, a generator or a literal that a kernel needs in
// memory), the finish of partial records, or an effect. Units are numbered like nodes; the finish
// of node n is n_nodes + n. A *kernel* owns one or more units: contractions of one kind, or units
// of rows, or a product with the units of rows that run on its results (its *post*). A dispatch
// that products make for themselves (*gathered*, their *pre*) has no kernel. A *buffer* is memory
// that kernels name; every act buffer has exactly one kernel that writes it.
//
// Depth, per segment, is the number of kernels that must have ended
// before: it never falls along an edge, kernels and indexed reads lie one deeper than what they
// read, and what reads partial records lies one deeper than what makes them. Row groups of one
// depth are therefore convex: any grouping inside (segment, depth, row axis, route) is acyclic.
#ifndef MOEC_LOWER_PASS_H
#define MOEC_LOWER_PASS_H

#include "compiler/kernel/kernel.h"
#include "compiler/lower/lower.h"

typedef enum Role {
    ROLE_DEAD,
    ROLE_SOURCE,    // param, state, total: in memory before the part starts
    ROLE_LITERAL,   // const, constant
    ROLE_GENERATOR, // read where used
    ROLE_INLINE,    // views, maps of generators only, what backward computes again: evaluated
                    // by every reader for itself
    ROLE_ROW,       // computed by a row program
    ROLE_KERNEL,    // has a kernel of its own: contractions, routes, sums into sequences or experts
    ROLE_EFFECT,
} Role;

typedef struct NodeInfo {
    uint8_t role;
    bool forced;         // a copy is stored for a reader that needs memory
    uint8_t forced_segment; // of the first such reader
    bool weights; // gradients of weights, where they have segments of their own
    bool absorbed;       // effect: done by the kernel that makes its value
    bool pairs;          // attention: computes in bf16
    bool put;      // dispatch: its rows are written by the ranks that have the tokens
    bool shared;   // other ranks read or write its memory: region sym
    bool summed;   // collect in blocks: only its sum over choices is asked for, and comes back
    bool gathered; // dispatch: its rows are made by the contractions that read them, never stored
    uint8_t dtype; // of its value in memory: DTYPE_BF16, or 0 for what its kind says
    uint32_t into; // kernel: the accumulate or output effect it writes for, or 0
    uint32_t term; // matmul_t: the next one whose product is added to it, or 0
    uint32_t n_readers; // units that read it
    uint32_t buffers;   // list of buffers keyed by this node, index + 1
} NodeInfo;

typedef enum UnitKind {
    UNIT_NONE,
    UNIT_ROW,
    UNIT_KERNEL,
    UNIT_STORE,
    UNIT_EFFECT,
    UNIT_FINISH
} UnitKind;

typedef struct Unit {
    uint8_t kind, segment, row;
    bool stored; // other kernels read its value
    uint32_t route, node;
    uint32_t reads, n_reads; // in l->reads
    int32_t depth;
    uint32_t leader; // union-find
    uint32_t kernel; // index + 1
} Unit;

// A read is a node id; the bit says that the node's stored copy is meant where it also has another
// form.
#define READ_STORED 0x80000000u
static inline uint32_t read_node(uint32_t read) {
    return read & ~READ_STORED;
}

typedef enum BufferKind {
    BUFFER_VALUE,
    BUFFER_PARTIALS,
    BUFFER_ROW_OF_SLOT,
    BUFFER_SLOT_OF_ROW,
    BUFFER_OFFSETS,
    BUFFER_SPARE, // a result of the kernel that nobody reads; k: which
    BUFFER_PARAM,
    BUFFER_GRADIENT,
    BUFFER_TOTAL,
    BUFFER_OUTPUT, // keyed by the param or effect node
    BUFFER_METRIC, // k: slot
    BUFFER_INPUT,  // k: kind << 16 | (uint16_t)ahead
    BUFFER_SCALARS,
    BUFFER_FLAT /* k: region */,
    BUFFER_NORM,
    BUFFER_COUNTS,      // of a route; k: 0 own, 1 of all ranks
    BUFFER_TABLE,       // of a route; k: BlocksTable
    BUFFER_SENT,        // of a dispatch in blocks; k: BlocksStage
    BUFFER_BACK,        // of what a collect reads, in blocks; k: (2 * segment + summed) * N_BLOCKS_STAGES + BlocksStage
    BUFFER_STARTS,      // of a route in rounds: first rows of own experts, over all rounds
    BUFFER_NUMBERS,     // of a route in rounds: 1, 2, ..
    BUFFER_ROUNDS,      // of a route: how many further rounds; k: 0 own, 1 of all ranks
    BUFFER_RANGE,       // k: index in l->ranges
    BUFFER_PACKED,      // of a parameter's node; k: index in shared->packs
    BUFFER_PACKED_VALUE // of any other node, for one segment; k: index in l->packs
} BufferKind;

typedef struct Buffer {
    uint8_t kind, region, dtype, n_dims;
    uint32_t node;
    int32_t k;
    uint32_t next; // same node, index + 1
    int64_t dims[PLAN_MAX_DIMS], bytes, offset;
    int64_t *further; // [n_further] offset in slots 1, 2, ..
    int32_t n_further;
    uint32_t writer;    // kernel index + 1; act and outputs
    uint32_t n_readers; // kernels
    int32_t first, last;
    uint32_t plan; // index in the program, + 1
} Buffer;

// How a contraction wants its second operand packed (kernel.h: pack), and of what.
typedef struct Pack {
    uint32_t of;            // parameter's index; of a value: its node
    uint8_t segment, dtype; // segment: of a value
    bool turned;
    int32_t experts, each, k;
    int64_t n;
    int64_t offset; // of a parameter's: in packed
} Pack;

typedef struct Bind {
    const char *name;
    uint32_t buffer;
    uint8_t mode;
    int64_t step;   // bytes per trip of the kernel's repeat
    int64_t offset, bytes; // a part of the buffer, if bytes are not 0
    bool remote;    // a put or a get, on all ranks of lower_reach
    bool some;      // writes rows that a table names
} Bind;

// Numbers that belong to no node; `offset` of those that are not placed.
typedef struct Range {
    const char *name;
    Region region;
    int64_t offset, bytes;
    Dtype dtype;
} Range;

// Masters of a bucket as the ranks of its group have them, in a segment.
typedef struct Gathered {
    uint32_t bucket, segment, kernel, buffer;
} Gathered;

// Segments in the order of a plan. A pipeline's stage has one of forward, backward and wgrad for each of
// its chunks: forward with chunks rising, the others with chunks falling, counted from these. wgrad is
// there where gradients of weights are apart from backward.
enum { MOST_CHUNKS = 60 };
typedef enum SegmentKind {
    SEGMENT_CLEAR,
    SEGMENT_FORWARD,
    SEGMENT_BACKWARD = SEGMENT_FORWARD + MOST_CHUNKS,
    SEGMENT_WGRAD = SEGMENT_BACKWARD + MOST_CHUNKS,
    SEGMENT_UPDATE = SEGMENT_WGRAD + MOST_CHUNKS,
    N_SEGMENTS
} SegmentKind;
static inline bool is_forward(int segment) {
    return segment >= SEGMENT_FORWARD && segment < SEGMENT_BACKWARD;
}
static inline bool is_backward(int segment) {
    return segment >= SEGMENT_BACKWARD && segment < SEGMENT_WGRAD;
}

// An instruction to come: a kernel, or a crossing of ranks (op is not PLAN_launch), which has binds and
// nothing to generate.
typedef struct Kernel {
    KernelDesc desc;
    uint8_t segment;
    uint8_t op, group; // PlanOp; PlanGroup of a crossing
    uint8_t lane;      // send, recv: PlanLane
    uint8_t half;      // PlanHalf of a crossing
    bool last;         // runs in the last of its segment's rows only
    int32_t peer;      // send, recv: the other stage
    uint32_t bucket;   // of parameters, for which it crosses ranks, makes what does or takes what has; + 1, or 0
    double even;       // blocks: rows to each other member at even loads
    int32_t depth, late;      // late: depth at which its first reader needs it
    uint32_t node;            // its first contraction, else what an error points at
    uint32_t *units, n_units; // ascending
    Bind *binds;
    uint32_t n_binds, cap_binds;
    uint32_t *after, n_after, cap_after; // kernels of its segment that precede it, besides those that
                                         // make what it reads
    uint32_t plan;   // index in plan->kernels
    int32_t time;    // instruction number
    uint32_t repeat; // index in l->repeats + 1, or 0
} Kernel;

// Kernels that run over pieces of their rows, together: in this order, `trip` times. Or a set of rounds.c:
// as often as it is counted.
typedef struct Repeat {
    uint32_t *kernels, n, cap;
    int32_t trip;
    uint32_t count; // buffer, + 1; the first kernel comes first, the others as the scheduler finds best
} Repeat;

typedef struct Lower {
    Model *from; // traced model: carries the diagnostic
    const LowerOptions *options;
    Plan *plan;
    const char *target; // plan.h: PlanTarget
    const Layout *layout;
    Codegen *codegen;
    Arena *arena; // of this program's lowering
    Model *m;     // of this program
    Program program;
    int64_t tokens, sequences;
    uint32_t first_again, end_again; // nodes that backward computes again
    bool tiled; // contractions run in tiles that see a part of a row: nothing joins them
    bool one_order; // contractions read panels of either order, so weights are packed in one
    bool mixed;                      // some contraction computes in bf16
    NodeInfo *info;
    Unit *units;
    uint32_t n_units; // 2 * n_nodes
    uint32_t *reads, n_reads, cap_reads;
    Kernel *kernels;
    uint32_t n_kernels, cap_kernels;
    Buffer *buffers;
    uint32_t n_buffers, cap_buffers;
    uint32_t loose;  // buffers keyed by no node, index + 1
    uint32_t *order; // kernels in the order of instructions
    int32_t segment_first[N_SEGMENTS + 1];
    int32_t chunks, slots; // virtual stages of this rank; microbatches under way at once
    PlanRow *rows;         // in order; segments are SegmentKinds
    uint32_t n_rows;
    uint32_t *stamp; // by node: kernel index + 1 of its last visit
    uint16_t n_rounds; // sets of rounds.c
    Repeat *repeats;
    uint32_t n_repeats, cap_repeats;
    Pack *packs; // of values
    uint32_t n_packs, cap_packs;
    Range *ranges;
    uint32_t n_ranges, cap_ranges;
    Gathered *gathered;
    uint32_t n_gathered, cap_gathered;
    bool probe; // microbatches are looked at only: no update
    const Model *graph; // LowerProbe.graph
    bool trial; // kernels are described to see what they read: no addresses, no update
    bool unplaced; // parameters have no addresses yet: what is described first says which
    int64_t totals_bytes, act_bytes, act_bound, sym_bytes;
    struct Shared *shared;
} Lower;

// What the programs of one plan have in common.
typedef struct Shared {
    uint32_t *param_index; // of the model's parameters, in plan->params
    bool *rounded;         // by bucket: gathered in bf16, as all that read it want it
    bool *has_gradient;    // by parameter; NULL: all but states have one
    bool *held;            // by parameter and stage: does it read it? NULL: one stage
    int32_t *owner;        // by parameter: the stage; NULL: one stage
    Model *step;           // the step's graph, until it is lowered
    struct {
        int32_t k;
        int64_t offset;
    } inputs[64];
    int n_inputs;
    int64_t io_bytes;
    Pack *packs; // of parameters
    uint32_t n_packs, cap_packs;
} Shared;

/* lower.c */

// Message at the node's line; false.
bool lower_fail(Lower *l, uint32_t node, const char *format, ...) PRINTF_LIKE(3, 4);
bool lower_start(Lower *l, Program program);          // makes l->m
bool lower_until_described(Lower *l);                 // the passes up to describe
int64_t lower_rows(const Lower *l, const Type *type); // of its row axis; 1 for rowless

/* segments.c */

int lower_segment(const Lower *l, uint32_t n);                 // that node n is computed in
bool lower_has_segment(const Lower *l, int segment);           // in this program
const char *lower_segment_name(const Lower *l, int segment);   // "forward", "forward.1"
void lower_find_weights(Lower *l);                             // fills info[].weights, where they are apart
void lower_mark_weights(const Lower *l, bool *weights);        // [n_nodes], zeroed: which nodes would be, if they were
void lower_list_rows(Lower *l);                                // fills l->rows, l->slots
void lower_order_transfers(Lower *l);                          // of what kernels there are
bool lower_crosses_wide(const Type *type); // between stages in bf16, in a bf16 run

/* stages.c, cut.c: the part of a pipeline's program that is this stage's */

void stages_survey(Lower *l);                       // which parameters which stages read
bool lower_holds(const Lower *l, uint32_t param);   // is it in this stage's plan?
bool lower_owns(const Lower *l, uint32_t param);    // if held: is it not a copy of another stage's?
bool cut_program(Lower *l, Model *m);               // m becomes this stage's graph

/* precision.c */

bool pass_precision(Lower *l);

/* accumulate.c, loss.c, recompute.c: the graph that is lowered */

void accumulate_apart(Lower *l); // may leave nodes out of order of parts

bool pass_loss(Lower *l);
bool pass_recompute(Lower *l);

/* types.c: types in memory */

enum { LOWER_WIDE = 64 /* features that rows have in bf16 */ };
void lower_types(Lower *l);                     // after fusion, before buffers exist
bool lower_is_bf16(const Lower *l, uint32_t n); // does the contraction or attention compute in it?

/* roles.c: what each node is to lowering, and what each unit reads */

bool lower_roles(Lower *l);
// The node whose memory holds n's elements in n's order: n without views that move nothing.
uint32_t lower_plain(const Lower *l, uint32_t n);
uint32_t lower_base(const Lower *l, uint32_t n); // n without any views
// The node that the second operand of matmul or matmul_t n is packed from; `turn`: transposed.
uint32_t lower_weight(const Lower *l, uint32_t n, bool *turn);
// What an indexed node reads at any row: n without views, down to one that changes the row axis or that
// reshapes what lies in another order.
uint32_t lower_indexed(const Lower *l, uint32_t n);
bool lower_is_partial(const Lower *l, uint32_t n); // row_sum, row_max to rowless
// The unit that stores what the read asks for; 0: nobody in this program (source, generator).
uint32_t lower_producer(const Lower *l, uint32_t read);
int lower_layer(const Lower *l, uint32_t n); // of "layers.12.ffn" 12, outside of the layers -1
int lower_effect_value(Op op);               // which operand an effect stores

/* fuse.c */

bool pass_fuse(Lower *l);
// The unit behind the i-th read of a unit, or 0.
uint32_t fuse_dependency(const Lower *l, uint32_t unit, uint32_t i);
bool fuse_is_indexed(const Lower *l, const Unit *unit);
uint32_t fuse_unit_at(const Lower *l,
                      uint32_t i);        // units in topological order: a node's, its finish
void fuse_depths(Lower *l);               // depth.c
uint32_t fuse_find(Lower *l, uint32_t u); // the leader of a unit's set
void dump_fuse(const Lower *l, Text *out);

/* contract.c: contractions that share a kernel, and row groups that move into one */

bool contract_is_simple(const Lower *l, uint32_t n); // one group of columns, nothing between
void contract_merge_terms(Lower *l);                 // before roles: rewrites the graph
void contract_join_siblings(Lower *l);
// moves[g]: the group of contractions into which the units of group g move, or 0.
// Is n, a dispatch, read as left operand of products on its expert rows and in no other way?
bool contract_can_gather(const Lower *l, const bool *otherwise, uint32_t n);
// otherwise[n]: something else reads n, through views that move nothing or not.
void contract_find_otherwise(const Lower *l, bool *otherwise);
void contract_find_posts(Lower *l, const uint32_t *group, uint32_t *moves);
void contract_sizes(const Lower *l, uint32_t n, KernelDesc *d); // family, sizes
enum { MAX_PARTS = 4 };
// The contractions of a matmul or matmul_t kernel, in the order in which it takes them.
int kernel_parts(const Lower *l, const Kernel *kernel, uint32_t parts[MAX_PARTS]);
bool kernel_has_post(const Lower *l, const Kernel *kernel);

// Is it a contraction, route or sum? It may have units of rows besides.
static inline bool kernel_is_family(const Lower *l, const Kernel *kernel) {
    return kernel->n_units && l->units[kernel->node].kind == UNIT_KERNEL;
}

/* describe.c, body.c, buffers.c: kernels with their buffers */

bool pass_describe(Lower *l);
const char *kernel_word(const Kernel *kernel); // its family, or "@gather": for dumps
void dump_describe(const Lower *l, Text *out);
bool body_describe(Lower *l, uint32_t kernel); // of a row kernel, or the post of a contraction
void body_describe_pre(Lower *l, uint32_t kernel, uint32_t n); // that makes n, the left operand
uint32_t lower_buffer(Lower *l, BufferKind kind, uint32_t node, int32_t k); // index; made if new
uint32_t lower_find_buffer(const Lower *l, BufferKind kind, uint32_t node,
                           int32_t k);         // index + 1 or 0
uint32_t lower_value(Lower *l, uint32_t read); // buffer of a source, generator or value
bool buffer_is_made(const Buffer *buffer);     // its kernel must precede its readers
static inline bool buffer_is_placed(const Buffer *buffer) { // lives for a part of the program
    return buffer->region == REGION_act || buffer->region == REGION_sym;
}
void lower_bind(Lower *l, uint32_t kernel, const char *name, uint32_t buffer, OperandMode mode);
uint32_t lower_range(Lower *l, const char *name, Region region, int64_t offset, int64_t bytes); // f32
uint32_t lower_range_of(Lower *l, const char *name, Region region, int64_t offset, int64_t bytes, Dtype dtype);

enum { NO_KERNEL = UINT32_MAX };
uint32_t lower_add_kernel(Lower *l, SegmentKind segment, int32_t depth, Family family);
// An instruction that crosses ranks: bound like a kernel, what it reads first, then what it writes;
// names of operands do not matter. send, recv: the caller sets `peer`.
uint32_t lower_add_crossing(Lower *l, SegmentKind segment, int32_t depth, PlanOp op, PlanGroup group);
void lower_after(Lower *l, uint32_t kernel, uint32_t earlier); // both of one segment

/* update.c: the optimizer */

void describe_update(Lower *l);
// Masters of a bucket of several ranks, gathered in a segment; index in l->gathered.
uint32_t lower_gathered(Lower *l, uint32_t bucket, SegmentKind segment);
int64_t lower_numbers(int64_t bytes); // fp32 in as many bytes
// dst = or += what the ranks of a group have, in parts.
uint32_t lower_add_reduce(Lower *l, SegmentKind segment, int32_t depth, uint32_t parts, uint32_t dst,
                          int32_t ranks, bool accumulate);

/* sharded.c: parameters that no rank keeps whole */

bool lower_is_sharded(const Lower *l, uint32_t index); // of the model's parameter
// Kernels that read them, or add to their gradients, are given what a segment gathers, or exchanges.
void describe_sharded(Lower *l);

/* experts.c: experts on other ranks */

int32_t lower_ep(const Lower *l);
int32_t lower_experts(const Lower *l, const Type *type);        // of an R or E type's route, on this rank
int32_t lower_align(const Lower *l);                            // row_align; 1: rows are dense
int64_t lower_capacity(const Lower *l, uint32_t route);         // rows of a rank, pads among them
int32_t lower_rounds(const Lower *l, uint32_t route);           // further ones there may be; 0: all rows fit, or drop
bool lower_check_route(Lower *l, uint32_t n);
// Rank by expert, of a layer's parameter by its name; NULL: in order.
const int32_t *lower_owners(const Lower *l, const char *address);
// The kernel of route n, over ranks, and what precedes it; `ids`: a buffer.
void describe_route_ranks(Lower *l, uint32_t kernel, uint32_t n, uint32_t ids);
void describe_round(Lower *l, uint32_t kernel, uint32_t n); // of a route with two operands

// When ranks must meet, while kernels are put in order.
enum { UNMET_PUT = 1, UNMET_WRITE = 2 };
typedef struct Meetings {
    uint8_t *unmet; // by buffer of sym: what was done since ranks met
    bool met;       // in this segment
    bool open;      // a put or a get since they met
} Meetings;
void meet_start(Lower *l, Meetings *m);
void meet_segment(Meetings *m);                                 // a segment begins
bool meet_is_due(const Lower *l, const Meetings *m, uint32_t kernel); // before it runs
void meet_run(const Lower *l, Meetings *m, uint32_t kernel);    // it runs
void meet_join(const Lower *l, Meetings *m, const Meetings *before);
void meet_lives(Lower *l);                                      // after other lives are known

/* pads.c: zeros between experts' rows */

void pads_describe(Lower *l); // after all kernels that put rows

/* rounds.c: rows that do not fit into the first round */

bool pass_rounds(Lower *l);
void describe_rounds(Lower *l); // after all else is described: the sets' kernels are repeats

/* blocks.c: rows between nodes */

typedef enum BlocksTable {
    TABLE_ALL, // row_of_slot of the rail; the others: templates/cpu/blocks.c
    TABLE_THERE, TABLE_TOKEN, TABLE_PUT, TABLE_HOME, TABLE_FIRST, TABLE_BACK, TABLE_GET, TABLE_PLACE,
} BlocksTable;
// On GPUs whole: TABLE_PUT (whose rows are the tokens of the rail), TABLE_FIRST and TABLE_PLACE are the tables there
// are, and nothing is BLOCKS_OUT of what is sent (templates/cpu/rail.c).
// As a kernel makes the rows; as they go; as they have come.
typedef enum BlocksStage { BLOCKS_ROWS, BLOCKS_OUT, BLOCKS_IN, N_BLOCKS_STAGES } BlocksStage;
bool lower_in_blocks(const Lower *l);
int64_t blocks_most_places(const Lower *l, uint32_t route); // that a table of the route may name; 0: not in blocks
PlanGroup lower_reach(const Lower *l);  // whose memory kernels reach
uint32_t blocks_table(Lower *l, uint32_t route, BlocksTable which);   // a buffer
uint32_t blocks_back(Lower *l, uint32_t value, int segment, bool summed); // what came back of it
void blocks_find_sums(Lower *l);        // before kernels are described: fills info[].summed
// What a dispatch sends of a token, once for all its choices or with all of them.
uint32_t blocks_token_value(const Lower *l, uint32_t dispatch);
void blocks_table_dims(const Lower *l, uint32_t route, int32_t which, int64_t dims[2]);
void blocks_sent_dims(const Lower *l, uint32_t dispatch, int32_t stage, int64_t dims[2]);
void blocks_back_dims(const Lower *l, uint32_t value, int32_t k, int64_t dims[2]);
void blocks_describe_route(Lower *l, SegmentKind segment, int32_t depth, uint32_t n);
void blocks_describe(Lower *l); // after all kernels of nodes

/* pack.c: second operands of contractions, as their kernels read them */

// The packed second operand of matmul or matmul_t n, whose sizes are in the kernel's description.
// Made by program "pack" if it is a parameter, else by a kernel of its own.
uint32_t lower_packed(Lower *l, uint32_t kernel, uint32_t n);
void pack_dims(const Pack *pack, int64_t dims[PLAN_MAX_DIMS], int *n_dims);
void pack_again(Lower *l);        // at the end of a step's update
bool emit_pack_program(Lower *l); // once per plan, after its programs

/* chunk.c: a loss and its products over pieces of the rows */

bool chunk_pays(const Lower *l, uint32_t n); // product n is several pieces
bool pass_chunk(Lower *l);
void dump_chunk(const Lower *l, Text *out);

/* schedule.c */

bool pass_schedule(Lower *l);
void dump_schedule(const Lower *l, Text *out);

void schedule_lives(Lower *l); // of buffers, from the times of kernels

/* overlap.c: what crosses ranks while kernels run */

// After kernels are in order: exchanges of resident gradients come in, gathers of weights and exchanges of gradients
// are taken apart.
void overlap_crossings(Lower *l);

/* generate.c: source text for every kernel */

bool pass_generate(Lower *l);

/* place.c */

typedef struct Span {
    int32_t first, last;
} Span;
typedef struct Interval {
    int64_t bytes;
    int32_t first, last; // of its only life, or of all
    int64_t offset;
    const Span *lives;   // ascending and apart, [n_lives]; NULL: one
    uint32_t n_lives;
} Interval;
// Offsets such that no two intervals that are alive at one time overlap; returns the peak. `bound`:
// largest sum of live bytes at any time. Sizes are rounded up to PLAN_GRAIN.
int64_t place_intervals(Interval *items, uint32_t n, Arena *scratch, int64_t *bound);
bool pass_place(Lower *l);
// With several rows: the lives of a region's buffers over them, a buffer that lives from row to row once in every
// slot. place_rows.c
typedef struct Tenant {
    uint32_t buffer;
    int32_t slot;
} Tenant;
bool place_needs_rows(const Lower *l);
Interval *place_over_rows(Lower *l, Region region, Tenant **tenants, uint32_t *n);
void dump_place(const Lower *l, Text *out);

/* buckets.c: where parameters lie */

bool lower_place_params(Lower *l);
void lower_place_described(Lower *l); // what that one has left (Lower.unplaced), once kernels are described
// Where kernels read a parameter that they read as it is.
Region lower_param_place(const Lower *l, const PlanParam *param, int64_t *offset);
int32_t lower_bucket_ranks(const Lower *l, const PlanBucket *bucket);
// Bind i is of a buffer that holds a whole bucket: the kernel is given the parameter in it.
void lower_bind_part(Lower *l, uint32_t kernel, uint32_t i, const PlanParam *param, const PlanBucket *bucket);

/* emit.c */

bool emit_params(Lower *l); // once per plan
bool lower_is_trained(const Lower *l, uint32_t param);
const PlanParam *lower_param(const Lower *l, uint32_t param); // by index in the model
bool pass_emit(Lower *l);

/* verify.c */

bool lower_verify(Lower *l, char letter); // what must hold after that pass

#endif
