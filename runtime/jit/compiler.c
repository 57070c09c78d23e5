// SPDX-License-Identifier: Apache-2.0
// Finds the C compiler, asks what it is (once per binary: the answer is cached under path, size and
// time), and names the instruction-set level of this machine. The level, not "native", stands in
// the cache key, so machines of one level share entries.
#include "runtime/jit/compile.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Instruction sets ---------------------------------------------------------------------------- */

typedef struct IsaLevel {
    const char *name, *march, *extra[3]; // flags, up to the first NULL
    bool (*here)(void);
} IsaLevel;

static bool always(void) {
    return true;
}
#if defined(__x86_64__)
static bool has_v4_bf16(void) {
    return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16");
}
static bool has_v4(void) {
    return __builtin_cpu_supports("x86-64-v4");
}
static bool has_v3(void) {
    return __builtin_cpu_supports("x86-64-v3");
}
static bool has_v2(void) {
    return __builtin_cpu_supports("x86-64-v2");
}
#endif

// Best first. `extra`: compilers split 64-byte vectors in two by default.
static const IsaLevel levels[] = {
#if defined(__x86_64__)
    { "x86-64-v4-bf16", "x86-64-v4", { "-mprefer-vector-width=512", "-mavx512bf16" }, has_v4_bf16 },
    { "x86-64-v4", "x86-64-v4", { "-mprefer-vector-width=512" }, has_v4 },
    { "x86-64-v3", "x86-64-v3", { NULL }, has_v3 },
    { "x86-64-v2", "x86-64-v2", { NULL }, has_v2 },
    { "x86-64", "x86-64", { NULL }, always },
#elif defined(__aarch64__)
    { "armv8-a", "armv8-a", { NULL }, always },
#else
#error "no instruction-set level for this machine: add a row"
#endif
};

static Status find_level(const IsaLevel **out) {
    const char *asked = getenv("MOEC_ISA");
    Text names = { 0 };
    for (int i = 0; i < COUNT_OF(levels); i++) {
        bool here = levels[i].here();
        if (here && (!asked || !*asked || !strcmp(asked, levels[i].name))) {
            text_finish(&names);
            *out = &levels[i];
            return OK;
        }
        if (here) text_printf(&names, "%s%s", names.bytes ? ", " : "", levels[i].name);
    }
    Status status =
        status_fail(ERR_ARGUMENT, "MOEC_ISA: expected a level of this machine (%s), found \"%s\"",
                    text_cstr(&names), asked ? asked : "");
    text_finish(&names);
    return status;
}

int compiler_cores(const JitShare *share) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return share ? (int)min_i64(cores, share->cores) : cores;
}

/* The program --------------------------------------------------------------------------------- */

static bool runnable(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

// The path of a program, by PATH unless the name holds a slash; NULL if there is none.
static const char *find_program(const char *name, Arena *arena) {
    if (strchr(name, '/')) return runnable(name) ? name : NULL;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin"; *at;) {
        size_t n = strcspn(at, ":");
        const char *full = arena_printf(arena, "%.*s/%s", (int)n, at, name);
        if (n && runnable(full)) return full;
        at += n + (at[n] == ':');
    }
    return NULL;
}

static Status find_compiler(Arena *arena, const char **out) {
    static const char *const names[] = { "clang-19", "clang", "gcc" };
    const char *asked = getenv("MOEC_CC");
    if (asked && *asked) {
        *out = find_program(asked, arena);
        if (*out) return OK;
        return status_fail(
            ERR_COMPILE,
            "MOEC_CC: expected a C compiler, found no program \"%s\"\n"
            "  hint: unset MOEC_CC to look for clang-19, clang, gcc, or set it to a full path",
            asked);
    }
    for (int i = 0; i < COUNT_OF(names); i++) {
        *out = find_program(names[i], arena);
        if (*out) return OK;
    }
    return status_fail(
        ERR_COMPILE,
        "kernels are compiled at run time: expected clang-19, clang or gcc in PATH, "
        "found none\n  hint: apt-get install clang-19, or set MOEC_CC to a C compiler");
}

// Runs `path --version` and keeps the first line.
static Status ask_identity(const char *path, Arena *arena, const char **identity) {
    Scratch scratch;
    TRY(scratch_create(arena, &scratch));
    const char *dir = scratch.dir;
    const char *const argv[] = { path, "--version", NULL };
    const char *output = arena_printf(arena, "%s/version", dir);
    char *text = NULL;
    size_t n = 0;
    pid_t pid;
    Status status;
    TRY_GOTO(process_start(argv, dir, output, &pid), done);
    int end = process_reap(pid);
    TRY_GOTO(file_read(output, arena, &text, &n), done);
    size_t line = strcspn(text, "\n");
    if (end != 0 || !line) {
        status = status_fail(ERR_COMPILE,
                             "%s --version: expected a line that names the compiler, found "
                             "status %d and \"%.*s\"\n  hint: set MOEC_CC to a working C compiler",
                             path, WIFEXITED(end) ? WEXITSTATUS(end) : -1,
                             (int)min_i64((int64_t)line, 200), text);
        goto done;
    }
    *identity = arena_strndup(arena, text, line);
done:
    scratch_remove(&scratch);
    return status;
}

static Status find_identity(const char *dir, const char *path, Arena *arena,
                            const char **identity) {
    char real[PATH_MAX];
    struct stat info;
    if (!realpath(path, real) || stat(real, &info) < 0)
        return status_fail(ERR_COMPILE, "cannot look at %s: %s", path, strerror(errno));
    const char *what = arena_printf(arena, "moec compiler 1\n%s\n%lld\n%lld.%09ld\n", real,
                                    (long long)info.st_size, (long long)info.st_mtim.tv_sec,
                                    (long)info.st_mtim.tv_nsec);
    Hash key = hash_bytes(what, strlen(what));
    char *known;
    size_t n;
    TRY(cache_get(dir, key, arena, &known, &n));
    if (known) {
        *identity = known;
        return OK;
    }
    TRY(ask_identity(path, arena, identity));
    (void)cache_put(dir, key, *identity, strlen(*identity)); // asked again next time
    return OK;
}

// Kernels of a build with sanitizers are compiled with them too; their runtime is the program's, so
// it takes the same compiler. Calls into them are not compared by type: a plan's int64_t may be any
// of 64 bits. What AddressSanitizer sees at the access is not checked once more at the pointer: that
// makes compiling three times as long.
#if defined(MOEC_SANITIZE) && defined(__clang__)
static const char *const sanitizers[] = {
    ("-fsanitize=" MOEC_SANITIZE),
    "-fno-sanitize-recover=all",
    "-fno-sanitize=function,null,object-size,pointer-overflow",
    "-gline-tables-only",
    "-O1",
};
#else
static const char *const sanitizers[] = { NULL };
#endif

Status compiler_find(const char *dir, Arena *arena, Compiler *out) {
    const IsaLevel *level = NULL;
    TRY(find_level(&level));
    TRY(find_compiler(arena, &out->path));
    TRY(find_identity(dir, out->path, arena, &out->identity));
    out->isa = level->name;
    out->linker = find_program("ld", arena);
    const char *const flags[] = {
        "-O2",
        arena_printf(arena, "-march=%s", level->march),
        "-fPIC",
        "-fno-math-errno",
        "-ffp-contract=off",
        "-std=gnu17",
        "-w",
        level->extra[0],
        level->extra[1],
        NULL,
    };
    _Static_assert(COUNT_OF(flags) + COUNT_OF(sanitizers) <= JIT_MAX_FLAGS, "room for flags");
    memcpy(out->flags, flags, sizeof flags);
    int n = 0;
    while (flags[n]) n++;
    for (int i = 0; i < COUNT_OF(sanitizers) && sanitizers[i]; i++)
        if (strstr(out->identity, "clang")) out->flags[n++] = sanitizers[i];
    out->flags[n] = NULL;
    return OK;
}
