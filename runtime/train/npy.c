// SPDX-License-Identifier: Apache-2.0
// The header of a NumPy array file: magic, version, length, then a Python dictionary of three keys,
//
//   {'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }
//
// padded with spaces and a newline. It is scanned as a small language of its own; what NumPy does
// not write is refused.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/train/data.h"

bool npy_recognise(const uint8_t *bytes, size_t n) {
    return n >= 8 && !memcmp(bytes, "\x93NUMPY", 6);
}

typedef struct Header {
    char descr[8];
    bool fortran, has_descr, has_order, has_shape;
    int64_t numbers;             // product of the shape
    int n_dims;
} Header;

// A cursor over the dictionary; every reader leaves it after what it read, or returns false.
typedef struct Cursor { const char *at, *end; } Cursor;

static void skip_spaces(Cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n')) c->at++;
}

static bool take(Cursor *c, char expected) {
    skip_spaces(c);
    if (c->at == c->end || *c->at != expected) return false;
    c->at++;
    return true;
}

static bool take_word(Cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n)) return false;
    c->at += n;
    return true;
}

static bool read_string(Cursor *c, char *out, size_t cap) {
    skip_spaces(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    size_t n = 0;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (n + 1 >= cap || (unsigned char)*c->at < ' ' || *c->at == '\\') return false;
        out[n++] = *c->at;
    }
    out[n] = 0;
    return take(c, quote);
}

static bool read_size(Cursor *c, int64_t *out) {
    skip_spaces(c);
    const char *start = c->at;
    for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++) {
        int digit = *c->at - '0';
        if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, digit, out))
            return false;
    }
    return c->at > start;
}

// (), (3,), (3, 4)
static bool read_shape(Cursor *c, Header *header) {
    header->numbers = 1;
    if (!take(c, '(')) return false;
    while (!take(c, ')')) {
        int64_t size;
        if (!read_size(c, &size) || __builtin_mul_overflow(header->numbers, size, &header->numbers))
            return false;
        header->n_dims++;
        if (take(c, ',')) continue;
        return header->n_dims > 1 && take(c, ')');
    }
    return true;
}

static bool read_dictionary(Cursor *c, Header *header) {
    if (!take(c, '{')) return false;
    while (!take(c, '}')) {
        char key[16];
        if (!read_string(c, key, sizeof key) || !take(c, ':')) return false;
        bool *had = !strcmp(key, "descr")           ? &header->has_descr
                    : !strcmp(key, "fortran_order") ? &header->has_order
                    : !strcmp(key, "shape")         ? &header->has_shape
                                                    : NULL;
        if (!had || *had) return false;
        *had = true;
        if (had == &header->has_descr) {
            if (!read_string(c, header->descr, sizeof header->descr)) return false;
        } else if (had == &header->has_shape) {
            if (!read_shape(c, header)) return false;
        } else if (take_word(c, "True")) {
            header->fortran = true;
        } else if (!take_word(c, "False")) {
            return false;
        }
        if (take(c, ',')) continue;
        if (!take(c, '}')) return false;
        break;
    }
    skip_spaces(c);
    return c->at == c->end && header->has_descr && header->has_order && header->has_shape;
}

// '<u2' or, of one byte, '|u1'.
static bool is_integer(const char *descr, int item) {
    return descr[0] == (item == 1 ? '|' : '<') && (descr[1] == 'u' || descr[1] == 'i') &&
           descr[2] == '0' + item && !descr[3];
}

static Status wrong_type(const char *path, const Header *header, int item) {
    const char *hint = is_integer(header->descr, 1)   ? "--tokens bytes"
                       : is_integer(header->descr, 2) ? "--tokens uint16"
                       : is_integer(header->descr, 4) ? "--tokens uint32"
                       : item == 4                    ? "save it as array.astype('<u4')"
                       : item == 2                    ? "save it as array.astype('<u2')"
                                                      : "save it as array.astype('u1')";
    return status_fail(ERR_INPUT,
                       "%s is a NumPy array of '%s', expected integers of %d byte%s, "
                       "little-endian\n  hint: %s",
                       path, header->descr, item, item > 1 ? "s" : "", hint);
}

Status npy_parse(const char *path, const uint8_t *bytes, size_t n, int item, size_t *data) {
    int version = bytes[6], wide = version > 1;
    if (version < 1 || version > 3)
        return status_fail(ERR_VERSION, "%s is a NumPy array of version %d, expected 1 to 3", path,
                           version);
    size_t start = wide ? 12 : 10, length = 0;
    for (size_t i = 8; i < start && i < n; i++) length |= (size_t)bytes[i] << (8 * (i - 8));
    if (n < start || length > n - start)
        return status_fail(ERR_FORMAT, "%s ends inside its NumPy header", path);
    Header header = { 0 };
    Cursor cursor = { (const char *)bytes + start, (const char *)bytes + start + length };
    if (!read_dictionary(&cursor, &header))
        return status_fail(ERR_FORMAT, "%s: its NumPy header is malformed at offset %zu", path,
                           (size_t)((const uint8_t *)cursor.at - bytes));
    if (!is_integer(header.descr, item)) return wrong_type(path, &header, item);
    if (header.fortran && header.n_dims > 1)
        return status_fail(ERR_INPUT,
                           "%s is a NumPy array in Fortran order, expected C order or one "
                           "dimension",
                           path);
    *data = start + length;
    int64_t expected;
    if (__builtin_mul_overflow(header.numbers, (int64_t)item, &expected) ||
        (size_t)expected != n - *data)
        return status_fail(ERR_FORMAT,
                           "%s has %zu bytes of data, its NumPy header says %lld numbers of %d: "
                           "it is truncated or damaged",
                           path, n - *data, (long long)header.numbers, item);
    if (!header.numbers) return status_fail(ERR_INPUT, "%s is an empty NumPy array", path);
    return OK;
}
