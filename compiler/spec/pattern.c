// SPDX-License-Identifier: Apache-2.0
// The matcher: backtracking over the pattern's text. Every comparison and every try is one step;
// once the steps are used up or the pattern proves malformed, every further try fails at once.
#include "compiler/spec/pattern.h"

#include <ctype.h>
#include <string.h>

static const char *match_here(Pattern *p, const char *s, const char *at);

static bool spent(Pattern *p) { return ++p->steps > p->max_steps || p->error; }

static const char *malformed(Pattern *p, const char *why) {
    if (!p->error) p->error = why;
    return NULL;
}

// Past the single-character class at `at`: "x", "%x", ".", "[...]".
static const char *class_end(Pattern *p, const char *at) {
    if (*at == '%')
        return at + 1 < p->pattern_end ? at + 2 : malformed(p, "the pattern ends with '%'");
    if (*at != '[') return at + 1;
    at++;
    if (at < p->pattern_end && *at == '^') at++;
    for (const char *first = at; at < p->pattern_end; at++) {
        if (*at == ']' && at > first) return at + 1;
        if (*at == '%') at++;
    }
    return malformed(p, "a '[' in the pattern has no ']'");
}

static bool in_letter_class(int c, int letter) {
    bool in;
    switch (tolower(letter)) {
    case 'a': in = isalpha(c); break;
    case 'c': in = iscntrl(c); break;
    case 'd': in = isdigit(c); break;
    case 'g': in = isgraph(c); break;
    case 'l': in = islower(c); break;
    case 'p': in = ispunct(c); break;
    case 's': in = isspace(c); break;
    case 'u': in = isupper(c); break;
    case 'w': in = isalnum(c); break;
    case 'x': in = isxdigit(c); break;
    default: return c == letter;
    }
    return isupper(letter) ? !in : in;
}

// `set` .. `end` is "[...]" with its brackets.
static bool in_set(Pattern *p, int c, const char *set, const char *end) {
    bool negated = set[1] == '^', found = false;
    const char *at = set + (negated ? 2 : 1), *last = end - 1;
    while (at < last && !found) {
        p->steps++;
        if (*at == '%' && at + 1 < last) {
            found = in_letter_class(c, (unsigned char)at[1]);
            at += 2;
        } else if (at + 2 < last && at[1] == '-') {
            found = (unsigned char)at[0] <= c && c <= (unsigned char)at[2];
            at += 3;
        } else {
            found = (unsigned char)*at++ == c;
        }
    }
    return found != negated;
}

static bool single(Pattern *p, const char *s, const char *at, const char *end) {
    if (s >= p->text_end || spent(p)) return false;
    int c = (unsigned char)*s;
    switch (*at) {
    case '.': return true;
    case '%': return in_letter_class(c, (unsigned char)at[1]);
    case '[': return in_set(p, c, at, end);
    default: return (unsigned char)*at == c;
    }
}

static const char *match_longest(Pattern *p, const char *s, const char *at, const char *end) {
    ptrdiff_t n = 0;
    while (single(p, s + n, at, end)) n++;
    for (; n >= 0 && !spent(p); n--) {
        const char *result = match_here(p, s + n, end + 1);
        if (result) return result;
    }
    return NULL;
}

static const char *match_shortest(Pattern *p, const char *s, const char *at, const char *end) {
    for (;;) {
        const char *result = match_here(p, s, end + 1);
        if (result) return result;
        if (!single(p, s, at, end)) return NULL;
        s++;
    }
}

static const char *open_capture(Pattern *p, const char *s, const char *at, ptrdiff_t bytes) {
    if (p->n_captures == PATTERN_CAPTURES)
        return malformed(p, "the pattern has more than 32 captures");
    p->captures[p->n_captures++] = (Capture){ s, bytes };
    const char *result = match_here(p, s, at);
    if (!result) p->n_captures--;
    return result;
}

static const char *close_capture(Pattern *p, const char *s, const char *at) {
    int i = p->n_captures - 1;
    while (i >= 0 && p->captures[i].bytes != CAPTURE_OPEN) i--;
    if (i < 0) return malformed(p, "a ')' in the pattern has no '('");
    p->captures[i].bytes = s - p->captures[i].at;
    const char *result = match_here(p, s, at);
    if (!result) p->captures[i].bytes = CAPTURE_OPEN;
    return result;
}

// "%bxy" with `at` on x: a balanced run.
static const char *match_balanced(Pattern *p, const char *s, const char *at) {
    if (p->pattern_end - at < 2) return malformed(p, "'%b' in the pattern needs two characters");
    if (s >= p->text_end || *s != at[0]) return NULL;
    int depth = 1;
    for (s++; s < p->text_end && !spent(p); s++) {
        if (*s == at[1]) {
            if (!--depth) return s + 1;
        } else if (*s == at[0]) {
            depth++;
        }
    }
    return NULL;
}

static const char *match_again(Pattern *p, const char *s, int digit) {
    int i = digit - '1';
    if (i < 0 || i >= p->n_captures || p->captures[i].bytes < 0)
        return malformed(p, "the pattern refers to a capture that is not closed");
    size_t n = (size_t)p->captures[i].bytes;
    p->steps += (int64_t)n / 8;
    return (size_t)(p->text_end - s) >= n && !memcmp(s, p->captures[i].at, n) ? s + n : NULL;
}

// Whether a frontier "%f[set]" with `set` .. `end` holds before `s`.
static bool at_frontier(Pattern *p, const char *s, const char *set, const char *end) {
    int before = s == p->text ? 0 : (unsigned char)s[-1],
        after = s == p->text_end ? 0 : (unsigned char)*s;
    return !in_set(p, before, set, end) && in_set(p, after, set, end);
}

static const char *match_loop(Pattern *p, const char *s, const char *at) {
    while (at < p->pattern_end) {
        if (spent(p)) return NULL;
        if (*at == '(')
            return at + 1 < p->pattern_end && at[1] == ')'
                       ? open_capture(p, s, at + 2, CAPTURE_POSITION)
                       : open_capture(p, s, at + 1, CAPTURE_OPEN);
        if (*at == ')') return close_capture(p, s, at + 1);
        if (*at == '$' && at + 1 == p->pattern_end) return s == p->text_end ? s : NULL;
        if (*at == '%' && at + 1 < p->pattern_end) {
            if (at[1] == 'b') {
                s = match_balanced(p, s, at + 2);
                if (!s) return NULL;
                at += 4;
                continue;
            }
            if (at[1] == 'f') {
                at += 2;
                if (at >= p->pattern_end || *at != '[')
                    return malformed(p, "'%f' in the pattern needs a '['");
                const char *set = at;
                at = class_end(p, set);
                if (!at || !at_frontier(p, s, set, at)) return NULL;
                continue;
            }
            if (isdigit((unsigned char)at[1])) {
                s = match_again(p, s, at[1]);
                if (!s) return NULL;
                at += 2;
                continue;
            }
        }
        const char *end = class_end(p, at);
        if (!end) return NULL;
        char repeat = end < p->pattern_end ? *end : 0;
        if (repeat == '*') return match_longest(p, s, at, end);
        if (repeat == '-') return match_shortest(p, s, at, end);
        bool one = single(p, s, at, end);
        if (repeat == '+') return one ? match_longest(p, s + 1, at, end) : NULL;
        if (repeat == '?') {
            const char *result = one ? match_here(p, s + 1, end + 1) : NULL;
            if (result) return result;
            at = end + 1;
            continue;
        }
        if (!one) return NULL;
        s++;
        at = end;
    }
    return s;
}

static const char *match_here(Pattern *p, const char *s, const char *at) {
    if (p->depth == PATTERN_DEPTH) return malformed(p, "the pattern is too complex");
    p->depth++;
    const char *result = match_loop(p, s, at);
    p->depth--;
    return p->steps > p->max_steps || p->error ? NULL : result;
}

const char *pattern_match(Pattern *p, const char *at) {
    p->n_captures = 0;
    const char *end = match_here(p, at, p->pattern);
    for (int i = 0; end && i < p->n_captures; i++) {
        if (p->captures[i].bytes == CAPTURE_OPEN)
            return malformed(p, "a '(' in the pattern has no ')'");
    }
    return end;
}
