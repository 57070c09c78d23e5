// SPDX-License-Identifier: Apache-2.0
// The Model: a graph of typed tensors in SSA form, one result per node, hash-consed.
//
// A spec is traced into a Model (compiler/spec); `model_program` derives from it the graph of one
// program (step, eval, prefill), differentiated where the program trains; compiler/lower turns that
// into a plan. Node ids are 32-bit indices into `nodes`; id 0 means "none" or "failed". Ids are in
// topological order as long as no pass has cloned nodes (then `model_sort`).
#ifndef MOEC_MODEL_H
#define MOEC_MODEL_H

#include "compiler/model/ops.h"
#include "runtime/base/base.h"

typedef enum Op {
    OP_NONE,
#define OP(name, text, lo, hi, class, shape, adjoint, flops) OP_##name,
    OP_TABLE(OP)
#undef OP
    N_OPS
} Op;

typedef enum OpClass {
    CLASS_SOURCE, CLASS_GENERATOR, CLASS_VIEW, CLASS_MAP, CLASS_REDUCE, CLASS_WHOLE, CLASS_PARTIAL,
    CLASS_INDEX, CLASS_CONTRACT, CLASS_BARRIER, CLASS_EFFECT
} OpClass;

typedef struct OpInfo { const char *name /* "mul" */, *text /* "'*'" */; uint8_t lo, hi, class, flops; } OpInfo;
extern const OpInfo op_info[N_OPS];

typedef enum RowKind { ROW_NONE, ROW_T, ROW_R, ROW_E, ROW_S } RowKind; // printed - T R E S
typedef enum Kind { KIND_REAL, KIND_INT, KIND_BOOL, KIND_ROUTE, KIND_EFFECT } Kind;
typedef enum Set { SET_ALL, SET_MICROBATCH, SET_SEQUENCE, SET_GLOBAL, SET_EXPERT } Set;
typedef enum Precision { PRECISION_OPEN, PRECISION_FP32, PRECISION_BF16, PRECISION_MXFP8 } Precision;
typedef enum Part { PART_FORWARD, PART_BACKWARD, PART_UPDATE } Part;
// Transfers between stages of one pair and lane keep to ascending `order`; in the update part they are made
// before the optimizer (gradients of a parameter that several stages read), with the other values, or
// when all weights are new.
typedef enum CrossWhen { CROSS_GRADIENT, CROSS_VALUE, CROSS_WEIGHT } CrossWhen;
typedef enum Pairs { PAIRS_HALF, PAIRS_ADJACENT } Pairs;

enum { MAX_RANK = 6, MAX_ARGS = 8, MODEL_MAX_HEAD = 1 << 16 /* features of a head */ };

// Feature axes are dim[0..rank-1], row-major, the last one contiguous. `route` is the node that made
// the R or E axis, 0 for other rows. Unused bytes are zero, so types compare by memcmp.
typedef struct Type { uint8_t kind, row, rank, unused; uint32_t route; int32_t dim[MAX_RANK]; } Type;

typedef struct Loc { uint32_t file /* index + 1 into files, 0 = unknown */, line; uint16_t col, len; } Loc;

// Zero it before setting fields: compared by memcmp. Which member is an operation's: see ops.h.
typedef union Attr {
    uint64_t raw[2];
    double num;                                                          // const
    struct { int32_t over, each; uint8_t precision; } mm;                // matmul, matmul_t, matmul_w
    struct { int32_t axis, at; } cut;                                    // slice, pad, concat (axis)
    struct { float scale; int32_t window /* 0: none */; uint8_t causal, part; } attend;
    struct { float factor; int8_t sign; uint8_t pairs; } turn;           // rotate
    struct { int32_t experts; float capacity /* 0: dropless */; } route;
    uint32_t axes;                                                       // sum, amax
    int32_t k;                                 // tokens, labels, shift, top_k, one_hot, scatter, embed_w
    uint8_t set;                                                         // row_sum, row_max, n_valid
    uint8_t precision;                                                   // cast
    struct { int32_t stage /* the other */; uint8_t lane /* PlanLane */, when /* CrossWhen */, varies /* over ranks of a stage */; uint32_t order; } cross; // send, recv, total of a gradient
    uint32_t index;                            // param, state, constant, uniform (address), record, output
} Attr;

typedef struct Node {
    uint16_t op;
    uint8_t part, n_args;
    uint32_t args; // first operand in model->args
    uint32_t addr; // interned address ("layers.3.ffn"), of the scope or of the parameter itself
    uint32_t of;   // backward: the node whose adjoint made it, or 0
    uint16_t chunk; // of a program that was cut into stages: which of its rank's virtual stages
    uint16_t round; // made by lowering (rounds.c): the set of nodes that run again for rows of further rounds; 0: none
    Type type;
    Attr attr;
    Loc loc;
} Node;

typedef enum InitKind { INIT_NORMAL, INIT_ZEROS, INIT_ONES } InitKind;
// A trained tensor or a state. fp32. `is_weight`: operand of a contraction, if only through views
// (set by model_node; decay defaults to 1).
typedef struct Param {
    uint32_t node, addr;   // node: 0 in a program that does not read it (indices are those of the model)
    bool is_state, is_weight;
    uint8_t init;          // InitKind
    bool init_final;       // stated by its maker; rules may not change it
    double std;            // INIT_NORMAL
    double decay, lr;      // multipliers of the run's values
    uint8_t precision;     // of its contraction, PRECISION_OPEN if nothing says
    Loc precision_loc;     // of the user's line that says so; none: nothing does, or a built-in block
    Loc loc;
} Param;

typedef struct Loss { uint32_t node, addr; double weight; Loc loc; } Loss;   // addr "layers.2.ffn.router.balance"
typedef struct Metric { uint32_t node, addr; Loc loc; bool sum /* over the step; else as losses */; } Metric; // [T], [S], scalar or rowless vector
typedef struct Update { uint32_t state, total, next; Loc loc; } Update;
// What a program reports: slot i of `metrics`. One per loss, then one per metric, in order.
typedef struct Record { uint32_t addr; int32_t n /* numbers */; double weight /* losses; 0: metric */; bool sum; } Record;
typedef struct SourceFile { const char *path, *text; } SourceFile;          // for locations and carets

// What went wrong in the last call that returned 0 or false. The maker of the message knows no source
// line when building (`blame` are operands whose origin helps); passes fill `loc`.
typedef struct Diag {
    char message[512], hint[256];
    uint32_t blame[2];
    Loc loc;
} Diag;

typedef struct Model {
    Arena *arena;
    Node *nodes; uint32_t n_nodes, cap_nodes; // nodes[0] is unused
    uint32_t *args, n_args, cap_args;
    uint32_t *cons, cap_cons;                 // hash-consing, open addressing
    char **names; uint32_t n_names, cap_names; uint32_t *name_slots, cap_name_slots;
    double *constants; uint32_t n_constants, cap_constants;
    Param *params; uint32_t n_params, cap_params;
    Loss *losses; uint32_t n_losses, cap_losses;
    Metric *metrics; uint32_t n_metrics, cap_metrics;
    Update *updates; uint32_t n_updates, cap_updates;
    uint32_t *effects; uint32_t n_effects, cap_effects;   // roots of a program
    Record *records; uint32_t n_records, cap_records;
    SourceFile *files; uint32_t n_files, cap_files;
    const char *name;
    int32_t vocab, width, sequence, n_layers;
    uint32_t logits;                          // [T, vocab]
    int32_t ranks;                            // that divide the tokens of a step; 0 and 1: one
    // The state of the builder: copied into every node made.
    Loc loc; uint32_t addr; uint8_t part; uint32_t of;
    Diag diag;
} Model;

// May the value differ between the ranks that divide the tokens? By node. In `arena`.
bool *model_varies(const Model *m, Arena *arena);

typedef enum Program { PROGRAM_STEP, PROGRAM_EVAL, PROGRAM_PREFILL, N_PROGRAMS } Program;
extern const char *const program_name[N_PROGRAMS];

/* build.c: the only constructors --------------------------------------------------------------- */

Model *model_create(void);
void model_destroy(Model *m);                 // NULL is fine
Model *model_copy(const Model *from);         // equal in everything, ids included; shares no memory
uint32_t model_intern(Model *m, const char *name);        // 0 is ""
static inline const char *model_name(const Model *m, uint32_t name) { return m->names[name]; }
uint32_t model_add_file(Model *m, const char *path, const char *text); // for Loc.file

// Makes a node, or finds the equal one: checks arity, runs the shape rule, canonicalises (rewrite.c).
// `declared` is the result type for operations whose shape rule is `declared`, `broadcast`, `reshape`,
// `slice` or `pad`; NULL for others. Returns 0 and fills m->diag when the operands do not fit.
uint32_t model_node(Model *m, Op op, const Attr *attr /* NULL: zeros */, const Type *declared,
                    const uint32_t *args, int n_args);
uint32_t model_op1(Model *m, Op op, uint32_t a);
uint32_t model_op2(Model *m, Op op, uint32_t a, uint32_t b);
uint32_t model_op3(Model *m, Op op, uint32_t a, uint32_t b, uint32_t c);
uint32_t model_const(Model *m, double value, Kind kind);
uint32_t model_constant(Model *m, const double *values, int n);             // [n]
// k of tokens and labels, set of n_valid, address of uniform (0: m->addr); dims of uniform.
uint32_t model_generator(Model *m, Op op, int32_t k_or_set, const int32_t *dims, int rank);
uint32_t model_sum(Model *m, uint32_t x, uint32_t axes);
uint32_t model_row_sum(Model *m, uint32_t x, Set set);
uint32_t model_reshape(Model *m, uint32_t x, const int32_t *dims, int rank);
uint32_t model_broadcast(Model *m, uint32_t x, const Type *to);
uint32_t model_slice(Model *m, uint32_t x, int axis, int32_t at, int32_t size);
// New parameter or state at the address `addr`, on expert rows of `route` if nonzero. Returns its node;
// details are then set in m->params[m->nodes[id].attr.index].
uint32_t model_param(Model *m, uint32_t addr, bool is_state, const int32_t *dims, int rank, uint32_t route);

static inline const Node *model_at(const Model *m, uint32_t id) { return &m->nodes[id]; }
static inline uint32_t model_arg(const Model *m, uint32_t id, int i) { return m->args[m->nodes[id].args + (uint32_t)i]; }
static inline const Type *model_type(const Model *m, uint32_t id) { return &m->nodes[id].type; }
bool type_equal(const Type *a, const Type *b);
int64_t type_features(const Type *t);                     // product of the feature axes
int32_t model_experts(const Model *m, const Type *t);     // experts of an R or E type's route
int32_t model_top_k(const Model *m, const Type *t);       // choices per token of that route

/* verify.c, print.c, sort ------------------------------------------------------------------------ */

bool model_verify(Model *m);                              // false: m->diag says which invariant broke
// One line a node: "%12 = mul %3 %7 : real [T, 256]  layers.1.ffn". `locations`: append " @file:line".
void model_print(const Model *m, Text *out, bool locations);
void type_print(const Model *m, const Type *t, Text *out); // "[T, 4, 64]", "[E=8, 256, 256]"
void model_sort(Model *m);
// replace.c: with[id], of the same type, takes the place of node id (0: stays) for every reader and in the
// tables, but not for what the replacements themselves are made of. Call it while ids are topological;
// it sorts. Replaced nodes stay, unread. False: m->diag names a replacement of another type.
bool model_replace(Model *m, const uint32_t *with /* [n_nodes] */);
// Renumbers: nodes order[1..n] become 1..n; nodes not listed are dropped. Tables that name nodes
// follow (0 where theirs is gone).
void model_renumber(Model *m, const uint32_t *order, uint32_t n);

/* autodiff.c, programs.c --------------------------------------------------------------------------- */

// The graph of one program, in a new Model (own arena) that the caller destroys; NULL + from->diag on
// failure. Dead nodes are gone; ids are topological and ordered by part. Forward also holds what backward
// alone reads but forward determines: attend_lse, coefficients of losses over sets.
// step: records, accumulates (one per parameter that a loss depends on), updates. eval: records.
// prefill: output 0 = logits [T, vocab].
Model *model_program(Model *from, Program program);
// Gradients of sum_i seed[i] * root[i] with respect to every parameter: gradient node per m->params index,
// 0 where nothing flows. Used by model_program; exposed for tests (applies to its own results too).
bool model_gradients(Model *m, const uint32_t *roots, const uint32_t *seeds, int n_roots, uint32_t *gradients);

/* shorten.c ------------------------------------------------------------------------------------------ */

// A new model without layers i where without[i], [n_layers]: neither their losses, metrics, updates, parameters.
// Names of the others and n_layers are as before. NULL: the last layer would go, or some of what would remain reads
// more of what goes than one value that another can stand for.
Model *model_without_layers(const Model *from, const bool *without);

/* count.c -------------------------------------------------------------------------------------------- */

typedef struct Counts {
    int64_t total, active, active_without_table, state, mtp; // parameters; total and active without mtp
    int32_t tensors;
    double train_flops_per_token;   // 6 x macs, causal half, without fp32-stated contractions (the router)
    double router_flops_per_token;  // 6 x macs of those
    double forward_flops_per_token; // 2 x macs, all contractions
} Counts;
Counts model_counts(const Model *m);
double node_flops(const Model *m, uint32_t id, int64_t tokens); // of one node, for `tokens` tokens
double node_bytes(const Model *m, uint32_t id, int64_t tokens); // operands + result, views and generators free

/* diag.c ----------------------------------------------------------------------------------------------- */

void diag_set(Model *m, const char *format, ...) PRINTF_LIKE(2, 3);  // message; clears hint and blame
void diag_hint(Model *m, const char *format, ...) PRINTF_LIKE(2, 3);
// "FILE:LINE:COL: error: MESSAGE" + source line + caret + in/note/hint lines (dsl.md section 8).
void diag_print(const Model *m, Loc loc, const char *message, const char *in, const char *const *notes,
                int n_notes, const char *hint, Text *out);

#endif
