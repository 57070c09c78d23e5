// SPDX-License-Identifier: Apache-2.0
// What the files of compiler/spec share: the state of one run of a spec.
//
// Lua unwinds by longjmp, so nothing here owns C memory across a call into Lua: strings live in the
// Texts of Spec or in its arena, the scope and block frames are locals of the C functions that run
// a spec's function, and the sandbox's `pcall` restores the heads of both lists.
#ifndef MOEC_SPEC_INTERNAL_H
#define MOEC_SPEC_INTERNAL_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "compiler/cost/cost.h"
#include "compiler/layout/layout.h"
#include "compiler/spec/spec.h"
#include "runtime/base/embed.h"

#ifndef MOEC_SPEC_STEPS // fuzzing wants fewer, for more inputs
#define MOEC_SPEC_STEPS (20 * 1000 * 1000)
#endif

enum {
    LIMIT_STEPS = MOEC_SPEC_STEPS, // Lua instructions; work done in C counts too
    LIMIT_MEMORY = 64 << 20, // bytes of Lua values
    LIMIT_STRING = 64 << 10, // bytes of one string: bounds what one comparison or copy costs
    LIMIT_NODES = 1000 * 1000,
    LIMIT_CONSTANTS = 1000 * 1000, // numbers in vectors
    LIMIT_LOG = 1 << 20,           // bytes printed
    LIMIT_SOURCE = 1 << 20,        // bytes of one source file
    LIMIT_NAME = 200,              // bytes of a model's name
    HOOK_PERIOD = 1000,
};
#define LIMIT_FEATURES ((int64_t)1 << 40) // elements of one parameter, features of one value

// The kind of block that m.define made: its rows of fields and the function that it stands for.
typedef struct Row {
    const char *name, *doc /* NULL: none */;
    const char **types; // alternatives; a quoted choice keeps its quotes
    int n_types;
    bool required, optional; // optional: `false` is the default and means none
} Row;
typedef struct Define {
    const char *name;
    Row *rows;
    int n_rows;
    int values; // registry reference of { apply, default of row 1, ... }
    bool builtin;
} Define;

// Where a constructor was called. `path` is the constructor's name and the fields down to this
// table, separated by '/', as written in the source: "block/attention".
typedef struct Place {
    Loc loc;
    const char *path;
} Place;

typedef struct Block {
    const Define *define;
    Place place;
} Block; // userdata; user value 1: fields by row
typedef struct Tensor {
    uint32_t id;
} Tensor; // userdata

typedef struct Scope {
    struct Scope *up;
    uint32_t addr;   // interned full address
    uint32_t shared; // number of this call of an m.shared function, 0: a plain scope
    uint32_t base;   // address of the innermost m.shared, 0: none
} Scope;
typedef struct BlockFrame {
    struct BlockFrame *up;
    const Block *block;
} BlockFrame;

// What the spec knows about an address beside the Model (index: interned name).
typedef struct Known {
    uint32_t param;  // index + 1 into m->params
    uint32_t record; // node of the loss, metric or draw of this name
    uint32_t call;   // of the m.shared function that recorded it
    Loc loc;         // of the record
} Known;
// Beside m->params[i].
typedef struct Origin {
    uint32_t base, call; // the m.shared that made it, and its latest call; 0: none
    bool precision_final, updated;
} Origin;

typedef struct SourceText {
    uint32_t file;
    const char *chunk /* "@path" */, *text;
    size_t bytes;
} SourceText;
typedef struct Called {
    uint32_t addr;
    const Define *define;
} Called;
typedef struct Spec {
    lua_State *L;
    Arena *arena;
    Model *m;
    const SpecOptions *options;
    const char *folder; // of the spec, for m.include

    size_t used, churn; // bytes of Lua now; bytes ever allocated
    int64_t steps;
    bool fatal;    // a limit was hit: the run ends, pcall or not
    int fatal_ref; // its Diag
    bool out_of_memory;
    size_t starved; // bytes that the system refused Lua, 0: none
    Loc memory_loc;
    size_t logged;

    Scope *scope;
    BlockFrame *blocks;
    bool tracing; // inside m.model
    double eps;
    uint32_t shared_calls;

    Known *known;
    uint32_t cap_known;
    Origin *origins;
    uint32_t n_origins, cap_origins;
    SourceText *sources;
    uint32_t n_sources, cap_sources;
    const char **declared;
    uint32_t n_declared, cap_declared; // names of m.arg
    Define **defines;
    uint32_t n_defines, cap_defines;
    bool builtin; // dsl/ is being loaded
    uint32_t depth_include;
    struct SetUse *set_uses; // beside options->sets
    Called *called;          // kinds of blocks by address, if there are sets
    uint32_t n_called, cap_called;
    bool setting; // a value of --set is being checked

    Text message, hint, notes[2], rendered;
} Spec;

static inline Spec *spec_of(lua_State *L) { return *(Spec **)lua_getextraspace(L); }

extern const char spec_tensor_type[], spec_block_type[], spec_diag_type[]; // metatable names

/* place.c: where the spec is, and how an error is told ---------------------------------------- */

typedef struct Fault {
    Place at;         // {0}: where the spec runs now
    const char *word; // what to point at; for a field of `at`, its name
    bool field;       // `word` is a field of the innermost block that has it, or of at.path
    bool plain;       // no "in:" line
    const char *hint, *note;
    uint32_t origin[2]; // tensors whose origin is noted
} Fault;
_Noreturn void fault_raise(Spec *S, const Fault *fault, const char *format, ...) PRINTF_LIKE(3, 4);
_Noreturn void fault_simple(Spec *S, const char *format, ...) PRINTF_LIKE(2, 3);
_Noreturn void fault_of_model(Spec *S, const char *field);                  // from m->diag
const char *fault_hint(Spec *S, const char *format, ...) PRINTF_LIKE(2, 3); // text for Fault.hint
_Noreturn void fault_fatal(Spec *S, const Fault *fault, const char *format, ...) PRINTF_LIKE(3, 4);
_Noreturn void fault_again(Spec *S); // raises the fatal error once more
int fault_handler(lua_State *L);     // message handler: pushes the top value as a Diag
void fault_memory_text(Spec *S, Text *out);
Loc place_now(Spec *S);
Loc place_of_word(Spec *S, Place place, const char *word); // inside a string of the constructor's table
bool place_blames(Spec *S, const char *field); // whether a block at work has the field
uint32_t place_add_source(Spec *S, const char *path, const char *text); // Loc.file
void place_origin(Spec *S, uint32_t id, Text *out); // "layers.1.ffn.w_in", or the operation
const char *spec_nearest(const char *word, const char *const *words, int n_words);
void fault_command(Spec *S, const char *path, Text *out, const char *message, const char *hint);

/* sandbox.c, strings.c ------------------------------------------------------------------------ */

void sandbox_open(Spec *S); // registry "moec.env"
char *sandbox_text(char *text, size_t *bytes); // past a byte order mark
void sandbox_run(Spec *S, const char *chunk, const char *text, size_t bytes, bool user, int n_args);
void sandbox_charge(Spec *S, int64_t steps);
void sandbox_seal(Spec *S); // the module as specs see it
int sandbox_print(lua_State *L);
int sandbox_tostring(lua_State *L);
int sandbox_include(lua_State *L);
int sandbox_call_through(lua_State *L); // upvalue 1: a function of dsl/
void strings_open(lua_State *L);        // pushes the table `string`
void tables_open(lua_State *L);         // pushes the table `table`
// Pushes a table that reads `real` (on top, popped) and refuses writes; missing names are errors.
void sandbox_proxy(lua_State *L, const char *name);

/* tensor.c, ops.c ----------------------------------------------------------------------------- */

void tensor_open(Spec *S, int module);
int tensor_arity(lua_State *L, int i); // operands of a function of operations, else 0
void ops_open(Spec *S, int module, int core);
void push_tensor(lua_State *L, uint32_t id);
uint32_t is_tensor(lua_State *L, int i); // its node, 0: something else
uint32_t need_tensor(lua_State *L, int i, const char *op, const char *what);
int64_t need_integer(lua_State *L, int i, const char *op, const char *what, int64_t lo, int64_t hi);
double need_number(lua_State *L, int i, const char *op, const char *what);
const char *need_name(lua_State *L, int i,
                      const char *op); // of a scope, parameter, loss; a number will do
uint32_t spec_node(Spec *S, Op op, const Attr *attr, const Type *declared, const uint32_t *args,
                   int n);
uint32_t spec_checked(Spec *S, uint32_t id, const char *field); // fails unless id, bounds its size
void spec_here(Spec *S); // the builder's location and address
void check_options(lua_State *L, int i, const char *op,
                   const char *names);                  // nil or a table of these
const char *describe(lua_State *L, int i);              // "a table", "5", "nothing"
bool has_option(lua_State *L, int i, const char *name); // pushes it if it is there and not false
const char *type_text(Spec *S, uint32_t id);            // "[T, 64]"
const char *kind_text(Spec *S, uint32_t id);            // "real [T, 64]"
uint32_t weight_of(const Model *m, uint32_t id, int *hops); // the parameter a view shows, else 0

/* scope.c, effects.c -------------------------------------------------------------------------- */

void scope_open(Spec *S, int module);
void effects_open(Spec *S, int module, int core);
Known *known_at(Spec *S, uint32_t name);
uint32_t scope_address(Spec *S, const char *name); // `name` in the current scope
void need_tracing(Spec *S, const char *op);

/* block.c, rules.c ---------------------------------------------------------------------------- */

void block_open(Spec *S, int module);
const Block *is_block(lua_State *L, int i);
bool is_callable(lua_State *L, int i); // a function or a block
int block_call(lua_State *L);
void block_field(lua_State *L, int i, const char *name); // pushes the field's value
void rules_apply(Spec *S, int block);                    // m.model's `parameters`
// Calls `found` for every parameter, states aside, that a glob of the pattern matches. `who` is the list of
// rules in messages; a glob that matches nothing is an error at `place`.
void rules_match(Spec *S, const char *pattern, Place place, const char *who,
                 void (*found)(Spec *S, const void *rule, uint32_t param), const void *rule);
extern const char *const rules_precisions[];  // by Precision - PRECISION_FP32
uint8_t rules_precision(lua_State *L);        // that the value on top names, else PRECISION_OPEN
bool glob_matches(const char *glob, const char *text, int64_t *steps); // '*': any characters
// Replaces the block at stack index i by one with this field set; false: it has none of the name.
bool block_set(Spec *S, int i, const char *field, const char *value);

/* set.c --------------------------------------------------------------------------------------- */

void set_apply(Spec *S, int block); // options->sets; may replace the block at this stack index
bool set_unused(Spec *S, const char *path, Text *error); // true: one reached nothing, told

/* layout.c ------------------------------------------------------------------------------------ */

// What a file of a layout returned, on top of the stack.
typedef struct LayoutJob {
    Layout *layout;
    Arena *arena;
} LayoutJob;
void layout_read(Spec *S, const LayoutJob *job);

/* cluster.c ----------------------------------------------------------------------------------- */

// What a file of a cluster returned, on top of the stack; texts live in `arena`.
void cluster_read(Spec *S, Arena *arena, CostCluster *out);

/* routing.c ----------------------------------------------------------------------------------- */

void routing_apply(Spec *S); // options->routing, on a finished trace; node ids change

#endif
