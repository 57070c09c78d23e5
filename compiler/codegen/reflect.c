// SPDX-License-Identifier: Apache-2.0
// Launch tables: the parameter list of a kernel's entry, read from its expanded source by libclang.
//
// libclang is loaded on the first source that the cache does not know and stays loaded, so a warm
// start neither parses nor loads it. $MOEC_LIBCLANG names another library. The stored form of a
// table is text,
//     launch 1
//     f32 const x
//     f32 - y
// under a key made from the text of prelude and source; what does not read back is read anew.
#include <clang-c/Index.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/codegen/codegen.h"
#include "runtime/jit/jit.h"

/* libclang ----------------------------------------------------------------------------------- */

#define CLANG_FUNCTIONS(X)                                                                         \
    X(createIndex)                                                                                 \
    X(disposeIndex) X(parseTranslationUnit2) X(disposeTranslationUnit) X(getTranslationUnitCursor) \
        X(visitChildren) X(isCursorDefinition) X(getCursorSpelling) X(getCString) X(disposeString) \
            X(Cursor_getNumArguments) X(Cursor_getArgument) X(getCursorType)                       \
                X(getCursorResultType) X(getPointeeType) X(isConstQualifiedType)                   \
                    X(getTypeSpelling) X(getCursorLocation) X(getPresumedLocation)                 \
                        X(getNumDiagnostics) X(getDiagnostic) X(getDiagnosticSeverity)             \
                            X(getDiagnosticSpelling) X(getDiagnosticLocation) X(disposeDiagnostic) \
                                X(getCursorKind)

static struct {
#define X(name) __typeof__(clang_##name) *name;
    CLANG_FUNCTIONS(X)
#undef X
} clang;

static pthread_once_t clang_once = PTHREAD_ONCE_INIT;
static char clang_error[512];

static void load_libclang(void) {
    static const char *const names[] = {"libclang-19.so.19", "libclang-19.so.1", "libclang-19.so",
                                        "libclang.so.19", "/usr/lib/llvm-19/lib/libclang.so"};
    const char *chosen = getenv("MOEC_LIBCLANG");
    void *library = NULL;
    if (chosen && *chosen)
        library = dlopen(chosen, RTLD_NOW | RTLD_LOCAL);
    else
        for (int i = 0; i < COUNT_OF(names) && !library; i++)
            library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(clang_error, sizeof clang_error, "%s", reason ? reason : "not found");
        return;
    }
#define X(name)                                                                                    \
    *(void **)&clang.name = dlsym(library, "clang_" #name);                                        \
    if (!clang.name) snprintf(clang_error, sizeof clang_error, "it has no clang_" #name);
    CLANG_FUNCTIONS(X)
#undef X
}

/* reading ------------------------------------------------------------------------------------ */

typedef struct Reader {
    CXTranslationUnit unit;
    const char *entry;
    bool cuda;
    CXCursor found;
    bool is_found;
    Arena *arena;
    Status status;
} Reader;

static void dispose_string(void *string) {
    clang.disposeString(*(CXString *)string);
}

static char *take_string(Arena *arena, CXString string) {
    Held held;
    memory_hold(&held, dispose_string, &string);
    char *copy = arena_strdup(arena, clang.getCString(string) ? clang.getCString(string) : "");
    memory_drop(&held);
    clang.disposeString(string);
    return copy;
}

static char *place(Arena *arena, CXSourceLocation location) {
    CXString file;
    unsigned line, column;
    clang.getPresumedLocation(location, &file, &line, &column);
    return arena_printf(arena, "%s:%u", take_string(arena, file), line);
}

static enum CXChildVisitResult visit(CXCursor cursor, CXCursor parent, CXClientData data) {
    (void)parent;
    Reader *r = data;
    enum CXCursorKind kind = clang.getCursorKind(cursor);
    if (kind == CXCursor_LinkageSpec) return CXChildVisit_Recurse; // extern "C"
    if (kind != CXCursor_FunctionDecl || !clang.isCursorDefinition(cursor))
        return CXChildVisit_Continue;
    CXString name = clang.getCursorSpelling(cursor);
    bool same = !strcmp(clang.getCString(name), r->entry);
    clang.disposeString(name);
    if (!same) return CXChildVisit_Continue;
    r->found = cursor;
    r->is_found = true;
    return CXChildVisit_Break;
}

static void dispose_diagnostic(void *diagnostic) {
    clang.disposeDiagnostic(diagnostic);
}

// The first error of the parse, if any.
static Status check_diagnostics(Reader *r) {
    unsigned n = clang.getNumDiagnostics(r->unit);
    for (unsigned i = 0; i < n && r->status == OK; i++) {
        CXDiagnostic d = clang.getDiagnostic(r->unit, i);
        Held held;
        memory_hold(&held, dispose_diagnostic, d);
        if (clang.getDiagnosticSeverity(d) >= CXDiagnostic_Error)
            r->status = status_fail(ERR_COMPILE, "%s: %s",
                                    place(r->arena, clang.getDiagnosticLocation(d)),
                                    take_string(r->arena, clang.getDiagnosticSpelling(d)));
        memory_drop(&held);
        clang.disposeDiagnostic(d);
    }
    return r->status;
}

static const char *const c_types[N_DTYPES] = {
#define X(name, text, c_type, bytes) c_type,
    PLAN_DTYPES(X)
#undef X
};

static Status bad_parameter(Reader *r, CXCursor at, const char *name, const char *type,
                            const char *want) {
    return status_fail(ERR_INPUT, "%s: parameter `%s` of %s has type `%s`, expected %s",
                       place(r->arena, clang.getCursorLocation(at)), name, r->entry, type, want);
}

static Status read_pointer(Reader *r, CXCursor cursor, PlanArg *arg) {
    CXType type = clang.getCursorType(cursor);
    arg->name = take_string(r->arena, clang.getCursorSpelling(cursor));
    char *whole = take_string(r->arena, clang.getTypeSpelling(type));
    if (type.kind == CXType_Pointer) {
        CXType to = clang.getPointeeType(type);
        arg->is_const = clang.isConstQualifiedType(to);
        const char *spelled = take_string(r->arena, clang.getTypeSpelling(to));
        if (arg->is_const && !strncmp(spelled, "const ", 6)) spelled += 6;
        for (int i = 0; i < N_DTYPES; i++) {
            arg->dtype = (uint8_t)i;
            if (!strcmp(spelled, c_types[i])) return OK;
        }
    }
    return bad_parameter(r, cursor, arg->name, whole,
                         "a pointer to (const) float, bf16, int32_t or int64_t");
}

static Status read_tile(Reader *r, CXCursor cursor, const char *expected) {
    char *name = take_string(r->arena, clang.getCursorSpelling(cursor));
    char *type = take_string(r->arena, clang.getTypeSpelling(clang.getCursorType(cursor)));
    if (!strcmp(name, expected) && !strcmp(type, "int64_t")) return OK;
    return bad_parameter(r, cursor, name, type,
                         "the last two parameters to be `int64_t tile_begin, int64_t tile_end`");
}

static Status read_entry(Reader *r, PlanArg **args, uint32_t *n_args) {
    TRY(check_diagnostics(r));
    clang.visitChildren(clang.getTranslationUnitCursor(r->unit), visit, r);
    if (!r->is_found) return status_fail(ERR_INPUT, "kernel source does not define %s", r->entry);
    const char *at = place(r->arena, clang.getCursorLocation(r->found));
    if (clang.getCursorResultType(r->found).kind != CXType_Void)
        return status_fail(
            ERR_INPUT, "%s: %s returns `%s`, expected void", at, r->entry,
            take_string(r->arena, clang.getTypeSpelling(clang.getCursorResultType(r->found))));
    int n = clang.Cursor_getNumArguments(r->found), n_tile = r->cuda ? 0 : 2;
    if (r->cuda && n < 1)
        return status_fail(ERR_INPUT, "%s: %s has no parameters, expected pointers", at, r->entry);
    if (!r->cuda && n < 3)
        return status_fail(ERR_INPUT,
                           "%s: %s has %d parameters, expected pointers and then `int64_t "
                           "tile_begin, int64_t tile_end`",
                           at, r->entry, n);
    *args = ARENA_ARRAY(r->arena, PlanArg, n - n_tile);
    *n_args = (uint32_t)(n - n_tile);
    for (int i = 0; i < n - n_tile; i++)
        TRY(read_pointer(r, clang.Cursor_getArgument(r->found, (unsigned)i), &(*args)[i]));
    if (r->cuda) return OK;
    TRY(read_tile(r, clang.Cursor_getArgument(r->found, (unsigned)n - 2), "tile_begin"));
    return read_tile(r, clang.Cursor_getArgument(r->found, (unsigned)n - 1), "tile_end");
}

static void dispose_index(void *index) {
    clang.disposeIndex(index);
}

static void dispose_unit(void *unit) {
    clang.disposeTranslationUnit(unit);
}

static Status parse(bool cuda, const Text *unit, const char *entry, Arena *arena, PlanArg **args,
                    uint32_t *n_args) {
    pthread_once(&clang_once, load_libclang);
    if (*clang_error)
        return status_fail(ERR_COMPILE,
                           "cannot load libclang 19: %s\n  hint: install the package "
                           "libclang1-19, or set MOEC_LIBCLANG to the library",
                           clang_error);
    static const char *const c_flags[] = {"-std=gnu17", "-ffreestanding", "-nostdinc", "-w"};
    static const char *const cuda_flags[] = {
        "-x",          "cuda",       "-std=c++17", "--cuda-device-only", "--cuda-gpu-arch=sm_80",
        "-nocudainc",  "-nocudalib", "-nostdinc",  "-w"};
    const char *const *flags = cuda ? cuda_flags : c_flags;
    int n_flags = cuda ? COUNT_OF(cuda_flags) : COUNT_OF(c_flags);
    const char *file_name = cuda ? "kernel.cu" : "kernel.c";
    struct CXUnsavedFile file = {file_name, unit->at, unit->bytes};
    CXIndex index = clang.createIndex(0, 0);
    Held held_index, held_unit;
    memory_hold(&held_index, dispose_index, index);
    Reader r = {.entry = entry, .cuda = cuda, .arena = arena, .status = OK};
    enum CXErrorCode code = clang.parseTranslationUnit2(index, file_name, flags, n_flags, &file, 1,
                                                        CXTranslationUnit_None, &r.unit);
    Status status = OK;
    if (code == CXError_Success) {
        memory_hold(&held_unit, dispose_unit, r.unit);
        status = read_entry(&r, args, n_args);
        memory_drop(&held_unit);
        clang.disposeTranslationUnit(r.unit);
    } else {
        status = status_fail(ERR_COMPILE, "libclang cannot parse %s", entry);
    }
    memory_drop(&held_index);
    clang.disposeIndex(index);
    return status;
}

/* cache -------------------------------------------------------------------------------------- */

static const char header[] = "launch 1\n";

static void print_table(const PlanArg *args, uint32_t n_args, Text *out) {
    text_add(out, header);
    for (uint32_t i = 0; i < n_args; i++)
        text_printf(out, "%s %s %s\n", dtype_name(args[i].dtype), args[i].is_const ? "const" : "-",
                    args[i].name);
}

// False when the text is not a table.
static bool parse_table(const char *at, size_t n, Arena *arena, PlanArg **args, uint32_t *n_args) {
    size_t skip = sizeof header - 1;
    if (n <= skip || memcmp(at, header, skip) || at[n - 1] != '\n') return false;
    uint32_t lines = 0, count = 0;
    for (size_t i = skip; i < n; i++) lines += at[i] == '\n';
    *args = ARENA_ARRAY(arena, PlanArg, lines);
    const char *end = at + n;
    for (at += skip; at < end; at = strchr(at, '\n') + 1) {
        char type[8], mode[8], name[128], newline;
        if (sscanf(at, "%7s %7s %127s%c", type, mode, name, &newline) != 4 || newline != '\n')
            return false;
        PlanArg *arg = &(*args)[count++];
        while (arg->dtype < N_DTYPES && strcmp(type, dtype_name(arg->dtype))) arg->dtype++;
        if (arg->dtype == N_DTYPES) return false;
        arg->is_const = !strcmp(mode, "const");
        if (!arg->is_const && strcmp(mode, "-")) return false;
        arg->name = arena_strdup(arena, name);
    }
    *n_args = count;
    return true;
}

Status reflect(bool cuda, const char *prelude, const char *source, const char *entry, Arena *arena,
               PlanArg **args, uint32_t *n_args) {
    Text unit = {0}, table = {0}, key_text = {0};
    Arena *scratch = arena_create();
    Status status = OK;
    if (cuda) TRY_GOTO(template_expand("cuda/shim.h", NULL, 0, &unit), done);
    text_printf(&unit, "%s%s", prelude, source);
    Hash text_hash = hash_bytes(unit.at, unit.bytes);
    char hex[33];
    hash_hex(text_hash, hex);
    text_printf(&key_text, "%s%s %s", header, entry, hex);
    Hash key = hash_bytes(key_text.at, key_text.bytes);
    const char *dir = jit_cache_dir(scratch);
    char *stored = NULL;
    size_t n = 0;
    TRY_GOTO(cache_get(dir, key, scratch, &stored, &n), done);
    if (stored && parse_table(stored, n, arena, args, n_args)) goto done;
    TRY_GOTO(parse(cuda, &unit, entry, arena, args, n_args), done);
    print_table(*args, *n_args, &table);
    // A cache that cannot be written costs time, not results.
    if (cache_put(dir, key, table.at, table.bytes) != OK)
        log_debug("launch table of %s not cached", entry);
done:
    arena_destroy(scratch);
    text_finish(&unit);
    text_finish(&table);
    text_finish(&key_text);
    return status;
}
