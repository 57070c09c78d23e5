// SPDX-License-Identifier: Apache-2.0
// Whole gzip files (dictzip's are gzip files with an index in an extra field): every member,
// checksums verified, anything after the last member refused except zero padding.
#include <stdlib.h>
#include <zlib.h>

#include "runtime/train/data.h"

enum { GZIP_CHUNK = 1 << 26 }; // zlib counts in 32 bits

typedef struct Unpack {
    const char *path;
    const uint8_t *in;
    size_t n_in;
    uint8_t *out;
    size_t n_out, cap;
    z_stream z;
} Unpack;

bool gzip_recognise(const uint8_t *bytes, size_t n) {
    return n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b && (n == 2 || bytes[2] == 8);
}

static size_t offset_of(const Unpack *u) {
    return u->z.next_in ? (size_t)(u->z.next_in - u->in) : 0;
}

static Status grow(Unpack *u) {
    if (u->n_out < u->cap) return OK;
    size_t cap = u->cap ? u->cap * 2 : u->n_in * 3 + 65536;
    uint8_t *out = realloc(u->out, cap);
    if (!out)
        return status_fail(ERR_MEMORY, "%s: no memory for its unpacked text, past %zu bytes",
                           u->path, u->n_out);
    u->out = out;
    u->cap = cap;
    return OK;
}

// One member, from z.next_in on.
static Status unpack_member(Unpack *u) {
    for (;;) {
        TRY(grow(u));
        size_t in = offset_of(u), room = u->cap - u->n_out;
        u->z.avail_in = (uInt)min_i64((int64_t)(u->n_in - in), GZIP_CHUNK);
        u->z.avail_out = (uInt)min_i64((int64_t)room, GZIP_CHUNK);
        u->z.next_out = u->out + u->n_out;
        uInt had_in = u->z.avail_in, had_out = u->z.avail_out;
        int result = inflate(&u->z, Z_NO_FLUSH);
        u->n_out += had_out - u->z.avail_out;
        if (result == Z_STREAM_END) return OK;
        if (result == Z_MEM_ERROR)
            return status_fail(ERR_MEMORY, "%s: no memory to unpack it", u->path);
        if (result != Z_OK && result != Z_BUF_ERROR)
            return status_fail(
                ERR_FORMAT,
                "%s: damaged gzip data at offset %zu: %s\n  hint: 'gzip -t' checks the "
                "file; fetch it again",
                u->path, offset_of(u), u->z.msg ? u->z.msg : "bad stream");
        if (offset_of(u) == u->n_in && u->z.avail_out)
            return status_fail(
                ERR_FORMAT,
                "%s: its gzip data ends at offset %zu, inside a member, after %zu unpacked "
                "bytes\n  hint: the file is truncated; fetch it again",
                u->path, u->n_in, u->n_out);
        if (had_in == u->z.avail_in && had_out == u->z.avail_out)
            return status_fail(ERR_INTERNAL, "%s: zlib makes no progress at offset %zu", u->path,
                               offset_of(u));
    }
}

static Status unpack_all(Unpack *u) {
    u->z.next_in = (Bytef *)(uintptr_t)u->in;
    for (;;) {
        TRY(unpack_member(u));
        size_t at = offset_of(u);
        if (at == u->n_in) return OK;
        if (gzip_recognise(u->in + at, u->n_in - at)) {
            inflateReset(&u->z);
            continue;
        }
        for (size_t i = at; i < u->n_in; i++)
            if (u->in[i])
                return status_fail(
                    ERR_FORMAT,
                    "%s: bytes that are not gzip follow its last member, from offset %zu", u->path,
                    at);
        return OK;
    }
}

Status gzip_unpack(const char *path, const uint8_t *bytes, size_t n, uint8_t **out, size_t *n_out) {
    Unpack u = { .path = path, .in = bytes, .n_in = n };
    if (inflateInit2(&u.z, 15 + 16) != Z_OK)
        return status_fail(ERR_MEMORY, "%s: no memory to unpack it", path);
    Status status = unpack_all(&u);
    inflateEnd(&u.z);
    if (status != OK) {
        free(u.out);
        return status;
    }
    *out = u.out;
    *n_out = u.n_out;
    return OK;
}
