// SPDX-License-Identifier: Apache-2.0
// From the sources of a plan to code for GPUs. An entry of the cache holds all of a source: code as
// PTX or cubin or both, and the log with registers and spills, so that a warm start can still
// report them.
//
//   key    (format, NVRTC's version, architecture, options, kinds of code, prelude, source)
//   entry  Stored, then PTX, cubin, log
#include "runtime/jit/nvrtc.h"

#include <stdlib.h>

enum { MOST_OPTIONS = 8 };

typedef struct Stored {
    double ms;
    uint64_t n_ptx, n_cubin, n_log;
} Stored;

typedef struct Loading {
    const Plan *plan;
    int code;
    const char *options[MOST_OPTIONS];
    int n_options;
    const char *dir;
    Arena *arena;
    JitImage *images; // per source
    Hash *keys;
    int *kernels_of; // per source: how many kernels it holds
    CudaUnit *units;
    uint32_t *unit_source;
    int n_units;
    const JitShare *share; // NULL: one rank
    bool *expected;        // per source: another rank compiles it
    void (*progress)(void *user, int done, int total, int cached);
    void *user;
    int done, cached; // kernels
    bool warned;
} Loading;

Status jit_cuda_compiler(int *major, int *minor) {
    return nvrtc_version(major, minor);
}

char *jit_cuda_program(const Plan *plan, uint32_t source, Arena *arena) {
    return arena_printf(arena, "#line 1 \"prelude\"\n%s\n#line 1 \"source %u of the plan\"\n%s\n",
                        plan->sources[0].text, source, plan->sources[source].text);
}

static void choose_options(Loading *l, const char *arch) {
    const char *digits = arch + strlen("sm_");
    bool cubin = l->code & JIT_CUBIN;
    l->options[l->n_options++] =
        arena_printf(l->arena, "--gpu-architecture=%s_%s", cubin ? "sm" : "compute", digits);
    l->options[l->n_options++] = "--std=c++17";
    l->options[l->n_options++] = "--fmad=false";
    l->options[l->n_options++] = "-lineinfo";
    if (cubin) l->options[l->n_options++] = "--ptxas-options=-v";
}

/* Cache --------------------------------------------------------------------------------------- */

static Hash source_key(const Loading *l, uint32_t source, int major, int minor) {
    Text text = { 0 };
    text_printf(&text, "moec cuda 1\nNVRTC %d.%d code %d\n", major, minor, l->code);
    for (int i = 0; i < l->n_options; i++) text_printf(&text, "%s ", l->options[i]);
    return cache_source_key(&text, l->plan, source);
}

// A cubin is an ELF file: it lies as one does, on a multiple of 8.
static char *copy_bytes(Arena *arena, const char *bytes, size_t n) {
    if (!bytes) return NULL;
    return memcpy(arena_alloc(arena, n), bytes, n);
}

// The parts are copied so that each ends in a 0.
static bool find_cached(Loading *l, uint32_t source) {
    char *bytes;
    size_t n;
    Stored head;
    if (cache_get(l->dir, l->keys[source], l->arena, &bytes, &n) != OK || n < sizeof head)
        return false;
    memcpy(&head, bytes, sizeof head);
    if (head.n_ptx > n || head.n_cubin > n || head.n_log > n ||
        n != sizeof head + head.n_ptx + head.n_cubin + head.n_log)
        return false;
    const char *at = bytes + sizeof head;
    JitImage *image = &l->images[source];
    *image = (JitImage){ .n_ptx = head.n_ptx, .n_cubin = head.n_cubin, .n_log = head.n_log,
                         .ms = head.ms, .cached = true };
    if (head.n_ptx) image->ptx = arena_strndup(l->arena, at, head.n_ptx);
    if (head.n_cubin) image->cubin = copy_bytes(l->arena, at + head.n_ptx, head.n_cubin);
    image->log = at + head.n_ptx + head.n_cubin; // the entry ends in a 0
    return true;
}

static void remember(Loading *l, Hash key, const JitImage *image) {
    Stored head = { image->ms, image->n_ptx, image->n_cubin, image->n_log };
    Text text = { 0 };
    text_add_n(&text, (const char *)&head, sizeof head);
    if (image->n_ptx) text_add_n(&text, image->ptx, image->n_ptx);
    if (image->n_cubin) text_add_n(&text, image->cubin, image->n_cubin);
    text_add_n(&text, image->log, image->n_log);
    if (cache_put(l->dir, key, text.at, text.bytes) != OK && !l->warned) {
        l->warned = true;
        log_warn("compiled kernels are not kept: %s\n  hint: set MOEC_CACHE_DIR to a folder that "
                 "can be written",
                 status_message());
    }
    text_finish(&text);
}

/* Compiling ----------------------------------------------------------------------------------- */

static void report(const Loading *l) {
    if (l->progress) l->progress(l->user, l->done, (int)l->plan->n_kernels, l->cached);
}

static Status look_up(Loading *l) {
    const Plan *plan = l->plan;
    int major, minor;
    TRY(nvrtc_version(&major, &minor));
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        uint32_t source = plan->kernels[i].source;
        if (source == 0 || source >= plan->n_sources)
            return status_fail(ERR_INPUT, "kernel \"%s\": expected a source of 1 to %u, found %u",
                               plan->kernels[i].entry, plan->n_sources - 1, source);
        l->kernels_of[source]++;
    }
    for (uint32_t i = 1; i < plan->n_sources; i++) {
        if (!l->kernels_of[i]) continue;
        l->keys[i] = source_key(l, i, major, minor);
        if (find_cached(l, i)) l->cached += l->kernels_of[i];
        else l->unit_source[l->n_units++] = i;
    }
    l->done = l->cached;
    return OK;
}

// Where MOEC_JIT_DUMP says, every program stays, under the name that messages have.
static Status make_units(Loading *l) {
    const char *dump = getenv("MOEC_JIT_DUMP");
    if (dump && *dump) TRY(file_make_dirs(dump));
    l->units = ARENA_ARRAY(l->arena, CudaUnit, l->n_units);
    for (int u = 0; u < l->n_units; u++) {
        uint32_t source = l->unit_source[u], kernel = 0;
        while (l->plan->kernels[kernel].source != source) kernel++;
        l->units[u].name = arena_printf(l->arena, "%s.cu", l->plan->kernels[kernel].entry);
        char *text = jit_cuda_program(l->plan, source, l->arena);
        l->units[u].source = text;
        if (dump && *dump)
            TRY(file_write_atomic(arena_printf(l->arena, "%s/%s", dump, l->units[u].name), text,
                                  strlen(text)));
    }
    return OK;
}

static char *copy(Arena *arena, const char *bytes, size_t n) {
    return bytes ? arena_strndup(arena, bytes, n) : NULL;
}

static void unit_done(void *user, int u) {
    Loading *l = user;
    CudaUnit *unit = &l->units[u];
    uint32_t source = l->unit_source[u];
    JitImage *image = &l->images[source];
    *image = unit->image;
    image->ptx = copy(l->arena, image->ptx, image->n_ptx);
    image->cubin = copy_bytes(l->arena, image->cubin, image->n_cubin);
    image->log = copy(l->arena, image->log, image->n_log);
    free(unit->block);
    unit->block = NULL;
    remember(l, l->keys[source], image);
    l->done += l->kernels_of[source];
    report(l);
}

// What the assembler has laid out must be what launches pass.
static Status check_layouts(const Loading *l) {
    for (uint32_t i = 0; i < l->plan->n_kernels; i++) {
        const PlanKernel *kernel = &l->plan->kernels[i];
        const JitImage *image = &l->images[kernel->source];
        CubinKernel found;
        if (!image->cubin) continue;
        TRY(cubin_read(image->cubin, image->n_cubin, kernel->entry, &found));
        TRY(cubin_check(kernel, &found));
    }
    return OK;
}

static Status compile_needed(Loading *l) {
    TRY(make_units(l));
    Status status = nvrtc_compile(l->units, l->n_units, l->options, l->n_options, l->code, l->share,
                                  unit_done, l);
    for (int u = 0; u < l->n_units; u++) free(l->units[u].block); // left by a failure
    return status;
}

/* With other ranks: see share.c --------------------------------------------------------------- */

static Status deal(Loading *l) {
    int n = l->n_units;
    Hash *keys = ARENA_ARRAY(l->arena, Hash, n + 1);
    bool *mine = ARENA_ARRAY(l->arena, bool, n + 1);
    l->expected = ARENA_ARRAY(l->arena, bool, l->plan->n_sources + 1);
    for (int u = 0; u < n; u++) keys[u] = l->keys[l->unit_source[u]];
    TRY(share_deal(l->share, keys, n, l->arena, mine));
    l->n_units = 0;
    for (int u = 0; u < n; u++) {
        uint32_t source = l->unit_source[u];
        if (mine[u]) l->unit_source[l->n_units++] = source;
        else l->expected[source] = true;
    }
    return OK;
}

// What did not come through the cache is compiled here.
static void take_expected(Loading *l) {
    l->n_units = 0;
    for (uint32_t i = 1; i < l->plan->n_sources; i++) {
        if (!l->expected[i]) continue;
        if (find_cached(l, i)) l->done += l->kernels_of[i];
        else l->unit_source[l->n_units++] = i;
    }
    report(l);
}

static Status load(Loading *l) {
    const JitShare *share = l->share;
    Status status = look_up(l);
    if (share) status = share->agree(share->user, status);
    TRY(status);
    report(l);
    if (!share) return compile_needed(l);
    TRY(deal(l));
    TRY(share->agree(share->user, compile_needed(l)));
    take_expected(l);
    return compile_needed(l);
}

Status jit_cuda(const Plan *plan, const char *arch, int code,
                void (*progress)(void *user, int done, int total, int cached), void *user,
                const JitShare *share, Arena *arena, JitImage **images) {
    Loading l = { .plan = plan, .code = code, .arena = arena, .dir = jit_cache_dir(arena),
                  .share = share, .progress = progress, .user = user };
    *images = l.images = ARENA_ARRAY(arena, JitImage, plan->n_sources);
    if (!plan->n_kernels && !share) return OK;
    l.keys = ARENA_ARRAY(arena, Hash, plan->n_sources);
    l.kernels_of = ARENA_ARRAY(arena, int, plan->n_sources);
    l.unit_source = ARENA_ARRAY(arena, uint32_t, plan->n_sources);
    choose_options(&l, arch);
    TRY(load(&l));
    return check_layouts(&l);
}
