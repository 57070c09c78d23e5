// SPDX-License-Identifier: Apache-2.0
// Blobs by key on disk. One entry is one file that validates itself, DIR/KK/KEY with KK the first
// two digits of KEY:
//
//   offset  0  magic "moecjit1"
//           8  key, 16 bytes          a renamed or copied entry is foreign
//          24  length of the payload, 8 bytes
//          32  payload
//         end  XXH3-128 of everything before, 16 bytes
//
// Numbers are little-endian as on every host we run on. Anything that does not fit is a miss: a
// torn write, a flipped bit, another format. Writers rename over each other; equal keys hold equal
// meaning, so it does not matter who wins, and nobody reads an entry back after writing it.
#include "runtime/jit/jit.h"

#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct EntryHead {
    char magic[8];
    Hash key;
    uint64_t bytes;
} EntryHead;
_Static_assert(sizeof(EntryHead) == 32, "layout of a cache entry");
static const char magic[8] = "moecjit1";

// A set and absolute folder, as the XDG rules ask for.
static const char *folder(const char *name) {
    const char *value = getenv(name);
    return value && value[0] == '/' ? value : NULL;
}

const char *jit_cache_dir(Arena *arena) {
    const char *own = getenv("MOEC_CACHE_DIR");
    if (own && *own) return arena_strdup(arena, own);
    const char *xdg = folder("XDG_CACHE_HOME");
    if (xdg) return arena_printf(arena, "%s/moec", xdg);
    const char *home = folder("HOME");
    if (!home) {
        const struct passwd *user = getpwuid(geteuid());
        home = user ? user->pw_dir : NULL;
    }
    return home ? arena_printf(arena, "%s/.cache/moec", home) : NULL;
}

static char *entry_path(const char *dir, Hash key, Arena *arena, bool folder_only) {
    char hex[33];
    hash_hex(key, hex);
    return arena_printf(arena, "%s/%.2s%s%s", dir, hex, folder_only ? "" : "/",
                        folder_only ? "" : hex);
}

Status cache_get(const char *dir, Hash key, Arena *arena, char **bytes, size_t *n) {
    *bytes = NULL;
    *n = 0;
    if (!dir) return OK;
    const char *path = entry_path(dir, key, arena, false);
    char *file;
    size_t size;
    if (access(path, R_OK) != 0 || file_read(path, arena, &file, &size) != OK) return OK;

    EntryHead head;
    if (size < sizeof head + sizeof(Hash)) return OK;
    memcpy(&head, file, sizeof head);
    size_t payload = size - sizeof head - sizeof(Hash);
    Hash trailer;
    memcpy(&trailer, file + sizeof head + payload, sizeof trailer);
    bool good = !memcmp(head.magic, magic, sizeof magic) && hash_equal(head.key, key) &&
                head.bytes == payload &&
                hash_equal(trailer, hash_bytes(file, sizeof head + payload));
    if (!good) {
        log_debug("cache: %s is damaged or foreign", path);
        return OK;
    }
    file[sizeof head + payload] = 0;
    *bytes = file + sizeof head;
    *n = payload;
    return OK;
}

Status cache_put(const char *dir, Hash key, const void *bytes, size_t n) {
    if (!dir)
        return status_fail(ERR_IO,
                           "no cache folder: MOEC_CACHE_DIR, XDG_CACHE_HOME and HOME are unset");
    Arena *arena = arena_create();
    EntryHead head = { .key = key, .bytes = n };
    memcpy(head.magic, magic, sizeof magic);
    char *file = arena_alloc(arena, sizeof head + n + sizeof(Hash));
    memcpy(file, &head, sizeof head);
    if (n) memcpy(file + sizeof head, bytes, n);
    Hash trailer = hash_bytes(file, sizeof head + n);
    memcpy(file + sizeof head + n, &trailer, sizeof trailer);

    Status status;
    TRY_GOTO(file_make_dirs(entry_path(dir, key, arena, true)), done);
    TRY_GOTO(file_write_atomic(entry_path(dir, key, arena, false), file,
                               sizeof head + n + sizeof trailer),
             done);
done:
    arena_destroy(arena);
    return status;
}

Hash cache_source_key(Text *head, const Plan *plan, uint32_t source) {
    const uint32_t parts[] = { 0, source };
    for (int i = 0; i < COUNT_OF(parts); i++) {
        const PlanSource *part = &plan->sources[parts[i]];
        char hex[33];
        hash_hex(hash_bytes(part->text, (size_t)part->bytes), hex);
        text_printf(head, "\n%s", hex);
    }
    Hash key = hash_bytes(head->at, head->bytes);
    text_finish(head);
    return key;
}
