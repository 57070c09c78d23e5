// SPDX-License-Identifier: Apache-2.0
// JSON files that carry a hash of their own content, so that a flipped digit cannot pass for data.

#include "runtime/train/checkpoint.h"

void json_from_memory(void) {
    json_set_alloc_funcs(memory_alloc, memory_free);
}

static int add_part(const char *bytes, size_t n, void *out) {
    text_add_n(out, bytes, n);
    return 0;
}

bool json_print(const json_t *document, size_t flags, Text *out) {
    return document && json_dump_callback(document, add_part, out, flags) == 0;
}

// Of the canonical text: sorted keys, no spaces.
static bool content_hash(const json_t *document, char hex[33]) {
    Text text = { 0 };
    bool good = json_print(document, JSON_COMPACT | JSON_SORT_KEYS, &text);
    if (good) hash_hex(hash_bytes(text.at, text.bytes), hex);
    text_finish(&text);
    return good;
}

Status json_save(const char *path, const json_t *document) {
    char hex[33];
    json_t *copy = json_copy((json_t *)(uintptr_t)document); // shallow: only the top level grows
    Text text = { 0 };
    bool good = copy && content_hash(copy, hex) &&
                !json_object_set_new(copy, "check", json_string(hex)) &&
                json_print(copy, JSON_INDENT(2), &text);
    json_decref(copy);
    Status status = good ? file_write_atomic(path, text.at, text.bytes)
                         : status_fail(ERR_ARGUMENT, "%s cannot be written: a name in it is not "
                                       "UTF-8", path);
    text_finish(&text);
    return status;
}

Status json_load_checked(const char *path, const char *what, json_t **out) {
    *out = NULL;
    Arena *arena = arena_create();
    char *bytes;
    size_t n;
    Status status = file_read(path, arena, &bytes, &n);
    if (status != OK) {
        arena_destroy(arena);
        return status;
    }
    json_error_t error;
    json_t *document = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &error);
    arena_destroy(arena);
    if (!document)
        return status_fail(ERR_FORMAT, "%s: the %s is not JSON: line %d: %s", path, what,
                           error.line, error.text);
    char hex[33];
    const char *check = json_string_value(json_object_get(document, "check"));
    char found[sizeof hex] = "";
    if (check && strlen(check) < sizeof found) strcpy(found, check);
    json_object_del(document, "check");
    bool good = found[0] && content_hash(document, hex) && !strcmp(found, hex);
    if (!good) {
        json_decref(document);
        return status_fail(ERR_FORMAT,
                           "%s: the %s does not match its own hash: it is damaged or was edited",
                           path, what);
    }
    *out = document;
    return OK;
}
