// SPDX-License-Identifier: Apache-2.0
// One run of a spec: the interpreter with its limits, the module `moec`, the trace of the model
// that the file returns, the rules over its parameters.
#include <math.h>
#include <stdlib.h>

#include "compiler/spec/internal.h"

extern const EmbeddedFile embedded_dsl[];

// In this order: each may use what those before it define.
static const char *const dsl_files[] = { "dsl/ops.lua", "dsl/blocks.lua", "dsl/cluster.lua",
                                         "dsl/hardware.lua" };

/* Limits -------------------------------------------------------------------------------------- */

// A refused request makes Lua collect and ask once more; only then does it raise an error. Memory
// that runs out in here is Lua's error first, since Lua is in the middle of its work, and leaves
// the guard once the state is closed; in C functions it leaves at once.
static void *allocate(void *ud, void *ptr, size_t old, size_t bytes) {
    Spec *S = ud;
    size_t had = ptr ? old : 0; // without a pointer `old` is the kind of value
    if (!bytes) {
        S->used -= had;
        free(ptr);
        return NULL;
    }
    bool long_string = !ptr && old == LUA_TSTRING && bytes > LIMIT_STRING + 64;
    if (bytes > had && (S->used + (bytes - had) > LIMIT_MEMORY || long_string)) {
        if (S->L) S->memory_loc = place_now(S);
        S->churn +=
            4 * S->used; // a whole collection follows: at the brink they would be the run's time
        return NULL;
    }
    void *at = realloc(ptr, bytes);
    if (!at) {
        S->starved = bytes;
        return NULL;
    }
    S->used += bytes - had;
    if (bytes > had) S->churn += bytes - had;
    return at;
}

// A function with many arguments in its `...` copies them in one instruction: its steps count for
// more.
static void hook(lua_State *L, lua_Debug *ar) {
    int extra = 16;
    while (extra < LUAI_MAXSTACK && lua_getlocal(L, ar, -extra)) {
        lua_pop(L, 1);
        extra *= 2;
    }
    sandbox_charge(spec_of(L), (int64_t)HOOK_PERIOD * (extra / 16));
}

/* The module ---------------------------------------------------------------------------------- */

static int diag_text(lua_State *L) {
    lua_getiuservalue(L, 1, 1);
    return 1;
}

static void run_embedded(Spec *S, const char *name, int core) {
    for (const EmbeddedFile *f = embedded_dsl; f->name; f++) {
        if (strcmp(f->name, name)) continue;
        const char *chunk = lua_pushfstring(S->L, "=%s", name);
        lua_pushvalue(S->L, core);
        sandbox_run(S, chunk, f->at, (size_t)(f->end - f->at), false, 1);
        return;
    }
    luaL_error(S->L, "%s is not in this binary", name);
}

static void open_module(Spec *S) {
    lua_State *L = S->L;
    luaL_newmetatable(L, spec_diag_type);
    lua_pushcfunction(L, diag_text);
    lua_setfield(L, -2, "__tostring");
    lua_pop(L, 1);
    sandbox_open(S);
    lua_newtable(L);
    int module = lua_gettop(L);
    lua_newtable(L);
    int core = lua_gettop(L);
    lua_pushvalue(L, module);
    lua_setfield(L, LUA_REGISTRYINDEX, "moec.module");
    tensor_open(S, module);
    ops_open(S, module, core);
    scope_open(S, module);
    effects_open(S, module, core);
    block_open(S, module);
    S->builtin = true;
    for (int i = 0; i < COUNT_OF(dsl_files); i++) {
        int top = lua_gettop(L);
        run_embedded(S, dsl_files[i], core);
        lua_settop(L, top);
    }
    S->builtin = false;
    sandbox_seal(S);
    lua_settop(L, module - 1);
}

/* The model ----------------------------------------------------------------------------------- */

static int64_t integer_field(lua_State *L, int block, const char *name) {
    block_field(L, block, name);
    int64_t n = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return n;
}

// Whether the bytes are UTF-8 without control characters: a terminal, a plan and JSON hold them.
static bool is_line(const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i++];
        int more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        uint32_t code = more ? c & (0x3fu >> more) : c;
        if (c < ' ' || c == 0x7f || (c >= 0x80 && c < 0xc2) || c > 0xf4) return false;
        for (int k = 0; k < more; k++) {
            if (i == n || (text[i] & 0xc0) != 0x80) return false;
            code = code << 6 | (text[i++] & 0x3f);
        }
        bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    }
    return true;
}

static void check_name(Spec *S, int block, const char *name, size_t n) {
    bool fits = n >= 1 && n <= LIMIT_NAME;
    if (fits && is_line(name, n)) return;
    Fault fault = { .at = is_block(S->L, block)->place,
                    .word = "name",
                    .field = true,
                    .plain = true,
                    .hint = "name: in logs, plans and checkpoints" };
    if (fits)
        fault_raise(S, &fault, "model.name must be UTF-8 without control characters or line ends");
    fault_raise(S, &fault, "model.name must have from 1 to %d bytes, got %zu", (int)LIMIT_NAME, n);
}

static void trace(Spec *S, int block) {
    lua_State *L = S->L;
    Model *m = S->m;
    block_field(L, block, "name");
    size_t n_name;
    const char *name = lua_tolstring(L, -1, &n_name);
    check_name(S, block, name, n_name);
    m->name = arena_strdup(m->arena, name);
    block_field(L, block, "eps");
    S->eps = lua_tonumber(L, -1);
    block_field(L, block, "layers");
    int64_t n_layers = luaL_len(L, -1);
    lua_pop(L, 3);
    m->vocab = (int32_t)integer_field(L, block, "vocab");
    m->width = (int32_t)integer_field(L, block, "width");
    m->sequence = (int32_t)integer_field(L, block, "sequence");
    m->n_layers = (int32_t)min_i64(n_layers, INT32_MAX);
    S->tracing = true;
    lua_pushvalue(L, block);
    lua_call(L, 0, 1);
    S->tracing = false;
    m->logits = is_tensor(L, -1); // checked by m.model
    lua_pop(L, 1);
    rules_apply(S, block);
    routing_apply(S);
    m->addr = 0;
    m->loc = (Loc){ 0 };
}

typedef struct Job {
    Spec *S;
    const char *path, *text;
    size_t bytes;
    const LayoutJob *layout; // the file describes a layout ...
    CostCluster *cluster;    // ... or a cluster; both NULL: a model
    Arena *arena;            // of the cluster
} Job;

// The block that the file returned is one of this kind.
static bool is_a(const Block *b, const char *name) {
    return b && b->define->builtin && !strcmp(b->define->name, name);
}

static int run(lua_State *L) {
    const Job *job = lua_touserdata(L, 1);
    Spec *S = job->S;
    open_module(S);
    place_add_source(S, job->path, job->text);
    const char *chunk = S->sources[0].chunk;
    sandbox_run(S, chunk, job->text, job->bytes, true, 0);
    const char *kind = job->layout ? "layout" : job->cluster ? "cluster" : "model";
    if (!is_a(is_block(L, -1), kind)) {
        Fault fault = { .at.loc = { .file = S->sources[0].file },
                        .hint = fault_hint(S, "return m.%s { ... }", kind) };
        fault_raise(S, &fault, "the file must return a %s, it returns %s", kind, describe(L, -1));
    }
    if (job->layout) layout_read(S, job->layout);
    else if (job->cluster) cluster_read(S, job->arena, job->cluster);
    else trace(S, lua_gettop(L));
    return 0;
}

// Arguments of the command line that no m.arg asked for: true if there is one.
static bool unknown_argument(Spec *S, const char *path, Text *error) {
    for (int i = 0; S->options && i < S->options->n_args; i++) {
        const char *key = S->options->args[i].key;
        bool known = false;
        for (uint32_t k = 0; k < S->n_declared; k++) known |= !strcmp(S->declared[k], key);
        if (known) continue;
        const char *near = spec_nearest(key, S->declared, (int)S->n_declared);
        Text hint = { 0 }, message = { 0 };
        if (near) text_printf(&hint, "did you mean '%s'? ", near);
        text_add(&hint,
                 S->n_declared ? "arguments: " : "it declares none; m.arg(name, default) does");
        for (uint32_t k = 0; k < S->n_declared; k++)
            text_printf(&hint, "%s%s", k ? ", " : "", S->declared[k]);
        text_printf(&message, "the spec has no argument '%s'", key);
        fault_command(S, path, error, text_cstr(&message), text_cstr(&hint));
        text_finish(&hint);
        text_finish(&message);
        return true;
    }
    return false;
}

static bool run_protected(Spec *S, const Job *job, Text *error) {
    lua_State *L = S->L;
    lua_pushcfunction(L, fault_handler);
    lua_pushcfunction(L, run);
    lua_pushlightuserdata(L, (void *)job);
    lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_PERIOD);
    int status = lua_pcall(L, 1, 0, 1);
    lua_sethook(L, NULL, 0, 0);
    if (status == LUA_OK)
        return !unknown_argument(S, job->path, error) && !set_unused(S, job->path, error);
    if (status == LUA_ERRMEM || S->out_of_memory) {
        fault_memory_text(S, error);
    } else if (luaL_testudata(L, -1, spec_diag_type)) {
        lua_getiuservalue(L, -1, 2);
        text_add(error, lua_tostring(L, -1));
    } else {
        const char *message = lua_tostring(L, -1); // an error while an error was told
        fault_command(S, job->path, error, message ? message : "the error could not be told", NULL);
    }
    return false;
}

static const char *folder_of(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    return slash == path ? "/" : arena_strndup(arena, path, (size_t)(slash - path));
}

static void close_lua(void *L) {
    lua_close(L);
}

// Runs the text with the model as the one that it makes, or that its layout is for.
static bool run_text(Job job, Model *m, const SpecOptions *options, Text *error) {
    Spec spec = { .options = options, .eps = 1e-6, .fatal_ref = LUA_NOREF }, *S = &spec;
    if (job.bytes > LIMIT_SOURCE) {
        text_printf(error, "%s: error: the file has more than %d bytes\n", job.path,
                    (int)LIMIT_SOURCE);
        return false;
    }
    S->arena = arena_create();
    S->m = m;
    S->L = lua_newstate(allocate, S);
    if (!S->L) memory_fail(S->starved);
    Held held;
    memory_hold(&held, close_lua, S->L);
    *(Spec **)lua_getextraspace(S->L) = S;
    S->folder = folder_of(S->arena, job.path);
    // Ended by a zero, for the line of a message.
    job.text = sandbox_text(arena_strndup(S->arena, job.text, job.bytes), &job.bytes);
    job.S = S;
    bool done = run_protected(S, &job, error);
    memory_drop(&held);
    lua_close(S->L);
    if (!done && S->starved) memory_fail(S->starved); // whatever became of it in the spec
    arena_destroy(S->arena);
    Text *texts[] = { &S->message, &S->hint, &S->notes[0], &S->notes[1], &S->rendered };
    for (int i = 0; i < COUNT_OF(texts); i++) text_finish(texts[i]);
    return done;
}

Model *spec_load_text(const char *path, const char *text, size_t bytes, const SpecOptions *options,
                      Text *error) {
    Model *m = model_create();
    Job job = { .path = path, .text = text, .bytes = bytes };
    if (run_text(job, m, options, error)) return m;
    model_destroy(m);
    return NULL;
}

bool spec_load_layout_text(const char *path, const char *text, size_t bytes, Model *model,
                           Arena *arena, Layout *layout, Text *error) {
    LayoutJob of_layout = { layout, arena };
    Job job = { .path = path, .text = text, .bytes = bytes, .layout = &of_layout };
    bool done = run_text(job, model, NULL, error);
    model->addr = 0;
    model->loc = (Loc){ 0 };
    return done;
}

bool spec_load_layout(const char *path, Model *model, Arena *arena, Layout *layout, Text *error) {
    Arena *scratch = arena_create();
    char *text;
    size_t bytes;
    bool done = false;
    if (file_read(path, scratch, &text, &bytes) != OK)
        text_printf(error, "moec: error: %s\n", status_message());
    else
        done = spec_load_layout_text(path, text, bytes, model, arena, layout, error);
    arena_destroy(scratch);
    return done;
}

bool spec_load_cluster_text(const char *path, const char *text, size_t bytes, Arena *arena, CostCluster *out,
                            Text *error) {
    Model *m = model_create();
    Job job = { .path = path, .text = text, .bytes = bytes, .cluster = out, .arena = arena };
    bool done = run_text(job, m, NULL, error);
    model_destroy(m);
    return done;
}

bool spec_load_cluster(const char *name, Arena *arena, CostCluster *out, Text *error) {
    size_t n = strlen(name), bytes;
    char *text;
    if (n < 4 || strcmp(name + n - 4, ".lua")) {
        const char *quotes = strpbrk(name, "\"\\\n");
        text = arena_printf(arena, "return require(\"moec\").hardware(\"%.*s\")",
                            (int)(quotes ? quotes - name : (ptrdiff_t)n), name);
        return spec_load_cluster_text("--cluster", text, strlen(text), arena, out, error);
    }
    if (file_read(name, arena, &text, &bytes) == OK)
        return spec_load_cluster_text(name, text, bytes, arena, out, error);
    text_printf(error, "moec: error: %s\n", status_message());
    return false;
}

Model *spec_load(const char *path, const SpecOptions *options, Text *error) {
    Arena *arena = arena_create();
    char *text;
    size_t bytes;
    Model *m = NULL;
    if (file_read(path, arena, &text, &bytes) != OK)
        text_printf(error, "moec: error: %s\n", status_message());
    else
        m = spec_load_text(path, text, bytes, options, error);
    arena_destroy(arena);
    return m;
}
