// SPDX-License-Identifier: Apache-2.0
// From sources to functions. Three kinds of entries are in the cache:
//
//   key of a source   (format, compiler, level, flags, prelude, source)  ->  hash of an object
//   hash of an object (of its bytes)                                     ->  the shared object
//   key of a compiler (path, size, time)                                 ->  its version line,
//   compiler.c
//
// Sources that are not there are compiled in batches, since starting a compiler costs more than a
// kernel; the sources of a batch then point to one object. What was compiled here is used from
// memory, never read back, and loaded through memfd: a cache that cannot be written costs time,
// nothing else. Ranks that compile together (share.c) read what others compiled; what did not come
// through the cache they compile themselves.
#include "runtime/jit/compile.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BATCH = 8 }; // sources per translation unit

typedef void (*Launch)(void *const *args, int64_t tile_begin, int64_t tile_end);
// The memfd stays open as long as the object is loaded: the loader knows objects by path,
// /proc/self/fd/N, and would take the next one under the same number for the same.
typedef struct Object {
    Hash hash;
    int fd;
    void *handle;
    Held held;
} Object;

struct Jit {
    Arena *arena;
    Launch *functions; // per kernel
    Object **objects;
    uint32_t n_objects, cap_objects;
};

typedef struct Loading {
    const Plan *plan;
    Jit *jit;
    Arena *scratch;
    const JitShare *share; // NULL: one rank
    const char *dir;
    Compiler compiler;
    Hash *keys;      // per source
    int32_t *object; // per source: in jit->objects; NEEDED, EXPECTED from another rank, or UNUSED by
                     // any kernel
    int *kernels_of; // per source: how many kernels it holds
    Unit *units;
    int n_units;
    uint32_t **unit_sources;
    int *n_unit_sources;
    void (*progress)(void *user, int done, int total, int cached);
    void *user;
    int done, cached; // kernels
    bool warned;
    Status status; // of loading compiled objects
} Loading;
enum { NEEDED = -1, UNUSED = -2, EXPECTED = -3 };

/* Loading ------------------------------------------------------------------------------------- */

static void unload(void *user) {
    Object *object = user;
    memory_drop(&object->held);
    dlclose(object->handle);
    close(object->fd);
}

static Status load_object(Jit *jit, Hash hash, const char *bytes, size_t n, int32_t *index) {
    for (uint32_t i = 0; i < jit->n_objects; i++) {
        if (hash_equal(jit->objects[i]->hash, hash)) {
            *index = (int32_t)i;
            return OK;
        }
    }
    Object *object = ARENA_NEW(jit->arena, Object);
    int fd = memfd_create("moec-kernels", MFD_CLOEXEC);
    if (fd < 0)
        return status_fail(status_errno(errno), "cannot make a memory file for kernels: %s",
                           strerror(errno));
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(fd, bytes + at, n - at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            close(fd);
            return status_fail(ERR_MEMORY, "no memory to load %zu bytes of kernels", n);
        }
        at += (size_t)wrote;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        close(fd);
        return status_fail(ERR_COMPILE, "cannot load compiled kernels: %s", dlerror());
    }
    *index = (int32_t)jit->n_objects;
    *object = (Object){ .hash = hash, .fd = fd, .handle = handle };
    memory_hold(&object->held, unload, object);
    *ARENA_PUSH(jit->arena, jit->objects, jit->n_objects, jit->cap_objects) = object;
    return OK;
}

static void report(const Loading *l) {
    if (l->progress) l->progress(l->user, l->done, (int)l->plan->n_kernels, l->cached);
}

/* Cache --------------------------------------------------------------------------------------- */

static Hash source_key(const Loading *l, uint32_t source) {
    Text text = { 0 };
    text_printf(&text, "moec source 1\n%s\n%s\n", l->compiler.identity, l->compiler.isa);
    for (const char *const *flag = l->compiler.flags; *flag; flag++)
        text_printf(&text, "%s ", *flag);
    return cache_source_key(&text, l->plan, source);
}

// A source's object from the cache; NEEDED when it is not there, damaged, or does not load.
static int32_t cached_object(Loading *l, uint32_t source) {
    char *bytes;
    size_t n;
    if (cache_get(l->dir, l->keys[source], l->scratch, &bytes, &n) != OK || n != sizeof(Hash))
        return NEEDED;
    Hash hash;
    memcpy(&hash, bytes, sizeof hash);
    int32_t index;
    for (uint32_t i = 0; i < l->jit->n_objects; i++) {
        if (hash_equal(l->jit->objects[i]->hash, hash)) return (int32_t)i;
    }
    if (cache_get(l->dir, hash, l->scratch, &bytes, &n) != OK || !bytes) return NEEDED;
    if (!hash_equal(hash_bytes(bytes, n), hash)) return NEEDED;
    return load_object(l->jit, hash, bytes, n, &index) == OK ? index : NEEDED;
}

static void remember(Loading *l, Hash key, const void *bytes, size_t n) {
    if (cache_put(l->dir, key, bytes, n) == OK || l->warned) return;
    l->warned = true;
    log_warn("compiled kernels are not kept: %s\n  hint: set MOEC_CACHE_DIR to a folder that can "
             "be written",
             status_message());
}

/* Compiling ----------------------------------------------------------------------------------- */

// Marks what the kernels need and what the cache has.
static Status look_up(Loading *l) {
    const Plan *plan = l->plan;
    l->keys = ARENA_ARRAY(l->scratch, Hash, plan->n_sources);
    l->object = ARENA_ARRAY(l->scratch, int32_t, plan->n_sources);
    l->kernels_of = ARENA_ARRAY(l->scratch, int, plan->n_sources);
    for (uint32_t i = 0; i < plan->n_sources; i++) l->object[i] = UNUSED;
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        uint32_t source = plan->kernels[i].source;
        if (source == 0 || source >= plan->n_sources) {
            return status_fail(ERR_INPUT, "kernel \"%s\": expected a source of 1 to %u, found %u",
                               plan->kernels[i].entry, plan->n_sources - 1, source);
        }
        l->object[source] = NEEDED;
        l->kernels_of[source]++;
    }
    for (uint32_t i = 1; i < plan->n_sources; i++) {
        if (l->object[i] == UNUSED) continue;
        l->keys[i] = source_key(l, i);
        l->object[i] = cached_object(l, i);
        if (l->object[i] >= 0) l->cached += l->kernels_of[i];
    }
    l->done = l->cached;
    return OK;
}

// Deals the needed sources into units: batches of BATCH, fewer when that leaves a core without
// work.
static void make_units(Loading *l) {
    const Plan *plan = l->plan;
    int needed = 0;
    l->n_units = 0;
    for (uint32_t i = 1; i < plan->n_sources; i++) needed += l->object[i] == NEEDED;
    if (!needed) return;
    int n = (int)max_i64(div_up(needed, BATCH), min_i64(needed, compiler_cores(l->share)));
    l->n_units = n;
    l->units = ARENA_ARRAY(l->scratch, Unit, n);
    l->unit_sources = ARENA_ARRAY(l->scratch, uint32_t *, n);
    l->n_unit_sources = ARENA_ARRAY(l->scratch, int, n);
    for (int u = 0; u < n; u++)
        l->unit_sources[u] = ARENA_ARRAY(l->scratch, uint32_t, div_up(needed, n));
    int at = 0;
    for (uint32_t i = 1; i < plan->n_sources; i++) {
        if (l->object[i] != NEEDED) continue;
        int u = at++ % n;
        l->unit_sources[u][l->n_unit_sources[u]++] = i;
    }
    for (int u = 0; u < n; u++) {
        Text text = { 0 };
        text_printf(&text, "#line 1 \"prelude.h\"\n%s", plan->sources[0].text);
        for (int i = 0; i < l->n_unit_sources[u]; i++) {
            uint32_t source = l->unit_sources[u][i];
            text_printf(&text, "\n#line 1 \"source %u of the plan\"\n%s", source,
                        plan->sources[source].text);
        }
        text_add(&text, "\n");
        char hex[33];
        hash_hex(hash_bytes(text.at, text.bytes), hex);
        l->units[u].name = arena_strdup(l->scratch, hex);
        l->units[u].source = arena_strndup(l->scratch, text.at, text.bytes);
        text_finish(&text);
    }
}

static void unit_done(void *user, int u) {
    Loading *l = user;
    if (l->status != OK) return;
    const Unit *unit = &l->units[u];
    Hash hash = hash_bytes(unit->object, unit->object_bytes);
    int32_t index = NEEDED;
    l->status = load_object(l->jit, hash, unit->object, unit->object_bytes, &index);
    if (l->status != OK) return;
    remember(l, hash, unit->object, unit->object_bytes);
    for (int i = 0; i < l->n_unit_sources[u]; i++) {
        uint32_t source = l->unit_sources[u][i];
        l->object[source] = index;
        l->done += l->kernels_of[source];
        remember(l, l->keys[source], &hash, sizeof hash);
    }
    report(l);
}

static Status bind(Loading *l) {
    const Plan *plan = l->plan;
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const PlanKernel *kernel = &plan->kernels[i];
        const Object *object = l->jit->objects[l->object[kernel->source]];
        const char *symbol = arena_printf(l->scratch, "%s_launch", kernel->entry);
        void *found = dlsym(object->handle, symbol);
        if (!found) {
            return status_fail(
                ERR_COMPILE,
                "kernel \"%s\": expected source %u to define %s, found no such function",
                kernel->entry, kernel->source, symbol);
        }
        memcpy(&l->jit->functions[i], &found, sizeof found);
    }
    return OK;
}

static Status find(Loading *l) {
    l->dir = jit_cache_dir(l->scratch);
    TRY(compiler_find(l->dir, l->scratch, &l->compiler));
    return look_up(l);
}

static Status compile_needed(Loading *l) {
    make_units(l);
    TRY(compile_units(&l->compiler, l->units, l->n_units, l->share, l->scratch, unit_done, l));
    return l->status;
}

/* With other ranks ---------------------------------------------------------------------------- */

// What others compile is EXPECTED from them.
static Status deal(Loading *l) {
    uint32_t n_sources = l->plan->n_sources, n = 0;
    Hash *keys = ARENA_ARRAY(l->scratch, Hash, n_sources + 1);
    uint32_t *sources = ARENA_ARRAY(l->scratch, uint32_t, n_sources + 1);
    bool *mine = ARENA_ARRAY(l->scratch, bool, n_sources + 1);
    for (uint32_t i = 1; i < n_sources; i++) {
        if (l->object[i] != NEEDED) continue;
        keys[n] = l->keys[i];
        sources[n++] = i;
    }
    TRY(share_deal(l->share, keys, n, l->scratch, mine));
    for (uint32_t i = 0; i < n; i++)
        if (!mine[i]) l->object[sources[i]] = EXPECTED;
    return OK;
}

static void take_expected(Loading *l) {
    for (uint32_t i = 1; i < l->plan->n_sources; i++) {
        if (l->object[i] != EXPECTED) continue;
        l->object[i] = cached_object(l, i);
        if (l->object[i] >= 0) l->done += l->kernels_of[i];
    }
    report(l);
}

static Status load_shared(Loading *l) {
    const JitShare *share = l->share;
    TRY(share->agree(share->user, find(l)));
    report(l);
    TRY(deal(l));
    TRY(share->agree(share->user, compile_needed(l)));
    take_expected(l);
    TRY(compile_needed(l));
    return bind(l);
}

static Status load(Loading *l) {
    if (l->share) return load_shared(l);
    if (!l->plan->n_kernels) return OK;
    TRY(find(l));
    report(l);
    TRY(compile_needed(l));
    return bind(l);
}

Status jit_load(const Plan *plan, void (*progress)(void *user, int done, int total, int cached),
                void *user, const JitShare *share, Jit **out) {
    *out = NULL;
    Arena *arena = arena_create(), *scratch = arena_create();
    Jit *jit = ARENA_NEW(arena, Jit);
    jit->arena = arena;
    jit->functions = ARENA_ARRAY(arena, Launch, plan->n_kernels);
    Loading l = { .plan = plan, .jit = jit, .scratch = scratch, .share = share,
                  .progress = progress, .user = user };
    Status status = load(&l);
    arena_destroy(scratch);
    if (status == OK) {
        *out = jit;
    } else {
        jit_destroy(jit);
    }
    return status;
}

void jit_destroy(Jit *jit) {
    if (!jit) return;
    for (uint32_t i = 0; i < jit->n_objects; i++) unload(jit->objects[i]);
    arena_destroy(jit->arena);
}

void (*jit_function(const Jit *jit, uint32_t kernel))(void *const *args, int64_t tile_begin,
                                                      int64_t tile_end) {
    return jit->functions[kernel];
}
