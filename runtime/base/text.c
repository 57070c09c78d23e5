// SPDX-License-Identifier: Apache-2.0
// Growing strings; doubles that read back to the same bits in any locale; the nearest word.
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/base.h"

static void reserve(Text *text, size_t more) {
    if (text->bytes + more < text->cap) return;
    size_t cap = text->cap ? text->cap : 256;
    while (cap <= text->bytes + more) cap *= 2;
    text->at = memory_grow(text->at, cap);
    text->cap = cap;
}

void text_finish(Text *text) {
    memory_free(text->at);
    *text = (Text){ 0 };
}

void text_add_n(Text *text, const char *bytes, size_t n) {
    reserve(text, n + 1);
    if (n) memcpy(text->at + text->bytes, bytes, n);
    text->bytes += n;
    text->at[text->bytes] = 0;
}

void text_add(Text *text, const char *string) {
    text_add_n(text, string, strlen(string));
}

void text_vprintf(Text *text, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, list);
    if (n > 0) {
        reserve(text, (size_t)n + 1);
        vsnprintf(text->at + text->bytes, (size_t)n + 1, format, again);
        text->bytes += (size_t)n;
    }
    va_end(again);
}

void text_printf(Text *text, const char *format, ...) {
    va_list list;
    va_start(list, format);
    text_vprintf(text, format, list);
    va_end(list);
}

const char *text_cstr(const Text *text) {
    return text->at ? text->at : "";
}

// Sign, "0x1.", the significand's hex digits without trailing zeros, "p" and the exponent. Zero is
// "0x0p+0", denormals are normalised. libc's %a is not used: its digits differ between systems.
void text_add_double(Text *text, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    if (bits >> 63) text_add(text, "-");
    uint64_t fraction = bits & 0xfffffffffffffu;
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff) { text_add(text, "inf"); return; }
    if (!exponent && !fraction) { text_add(text, "0x0p+0"); return; }
    if (!exponent) {
        exponent = 1;
        while (!(fraction >> 52)) { fraction <<= 1; exponent--; }
        fraction &= 0xfffffffffffffu;
    }
    char digits[14];
    snprintf(digits, sizeof digits, "%013llx", (unsigned long long)fraction);
    int n = 13;
    while (n && digits[n - 1] == '0') n--;
    text_printf(text, "0x1%s%.*sp%+d", n ? "." : "", n, digits, exponent - 1023);
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool text_parse_double(const char *from, size_t bytes, double *value) {
    const char *at = from, *end = from + bytes;
    bool negative = at < end && *at == '-';
    if (negative) at++;
    double result;
    if (end - at == 3 && !memcmp(at, "inf", 3)) {
        result = INFINITY;
    } else if (end - at == 6 && !memcmp(at, "0x0p+0", 6)) {
        result = 0;
    } else {
        if (end - at < 6 || memcmp(at, "0x1", 3)) return false;
        at += 3;
        uint64_t fraction = 0;
        int digits = 0;
        if (*at == '.')
            for (at++; at < end && hex_digit(*at) >= 0 && digits < 13; at++, digits++)
                fraction = fraction << 4 | (uint64_t)hex_digit(*at);
        if (end - at < 3 || at[0] != 'p' || (at[1] != '+' && at[1] != '-')) return false;
        bool down = at[1] == '-';
        int exponent = 0;
        for (at += 2; at < end; at++) {
            if (*at < '0' || *at > '9' || exponent > 9999) return false;
            exponent = exponent * 10 + *at - '0';
        }
        fraction <<= 4 * (13 - digits);
        result = ldexp(1 + (double)fraction * 0x1p-52, down ? -exponent : exponent);
    }
    *value = negative ? -result : result;
    // Exactly what is printed is accepted: one spelling per number.
    Text again = { 0 };
    text_add_double(&again, *value);
    bool same = again.bytes == bytes && !memcmp(again.at, from, bytes);
    text_finish(&again);
    return same;
}

void text_add_decimal(Text *text, double value) {
    char out[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, sizeof out, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    text_add(text, out);
}

// Levenshtein, case ignored; words up to 63 letters (longer ones are never near).
static int distance(const char *a, const char *b) {
    int n = (int)strlen(a), m = (int)strlen(b), row[64];
    if (n > 63 || m > 63) return 99;
    for (int j = 0; j <= m; j++) row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int above = row[j];
            int change = diagonal + (tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]));
            int best = above + 1 < row[j - 1] + 1 ? above + 1 : row[j - 1] + 1;
            row[j] = change < best ? change : best;
            diagonal = above;
        }
    }
    return row[m];
}

const char *text_nearest(const char *word, const char *const *words, int n_words) {
    const char *best = NULL;
    int best_distance = 0, limit = (int)max_i64(2, (int64_t)strlen(word) / 2);
    for (int i = 0; i < n_words; i++) {
        int d = distance(word, words[i]);
        if (*word && (strstr(words[i], word) || strstr(word, words[i])) && d > 2) d = 2;
        if (!best || d < best_distance) { best = words[i]; best_distance = d; }
    }
    return best && best_distance <= limit ? best : NULL;
}
