// SPDX-License-Identifier: Apache-2.0
// What every room stands on: status values with a trail, memory, text, hashes, files, logging.
//
// Rules. Memory of a phase lives in one arena and is freed with it. A function that can fail returns
// a Status; the first failure writes the message, callers pass it up with TRY. Nothing here prints
// (except log_*) and nothing exits. Running out of memory is the one failure that is no return value:
// see memory.c below.
#ifndef MOEC_BASE_H
#define MOEC_BASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PRINTF_LIKE(at, first) __attribute__((format(printf, at, first)))
#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline int64_t min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t round_up(int64_t a, int64_t grain) { return div_up(a, grain) * grain; }

/* status.c: errors as values ----------------------------------------------------------------- */

// X(name, exit status of the command, text). Exit statuses: 2 = wrong command or input, 1 = failure.
#define STATUS_TABLE(X)                                                                            \
    X(OK, 0, "success")                                                                            \
    X(ERR_ARGUMENT, 2, "wrong argument")                                                           \
    X(ERR_INPUT, 2, "wrong input")                                                                 \
    X(ERR_FORMAT, 2, "malformed file")                                                             \
    X(ERR_VERSION, 2, "unknown version")                                                           \
    X(ERR_IO, 1, "input or output failed")                                                         \
    X(ERR_MEMORY, 1, "out of memory")                                                              \
    X(ERR_COMPILE, 1, "kernel compilation failed")                                                 \
    X(ERR_NUMERIC, 1, "non-finite values")                                                         \
    X(ERR_RANK, 1, "another rank failed")                                                          \
    X(ERR_DEVICE, 1, "device failed")                                                              \
    X(ERR_INTERRUPTED, 1, "interrupted")                                                           \
    X(ERR_INTERNAL, 1, "internal error")
#define X(name, exit_status, text) name,
typedef enum Status { STATUS_TABLE(X) } Status;
#undef X

// Starts a failure: stores the message of this thread (the newest origin wins) and returns `status`.
// The message says what was expected, what was found and, after "\n  hint: ", the next step.
Status status_fail(Status status, const char *format, ...) PRINTF_LIKE(2, 3);
Status status_trail(Status status, const char *file, int line); // adds a place to the trail
const char *status_message(void);                               // message of the last failure
const char *status_trail_text(void);                            // "file:line < file:line", for -v
int status_exit(Status status);                                 // 0, 1 or 2
Status status_errno(int error); // ERR_MEMORY if memory or file numbers ran out, else ERR_IO
#define TRY(call)                                                                                  \
    do {                                                                                           \
        Status try_status_ = (call);                                                               \
        if (try_status_ != OK) return status_trail(try_status_, __FILE__, __LINE__);               \
    } while (0)
// Like TRY inside a function that must clean up: jumps to `label` with the variable `status` set.
#define TRY_GOTO(call, label)                                                                      \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != OK) { status_trail(status, __FILE__, __LINE__); goto label; }                \
    } while (0)

/* memory.c: when memory runs out ---------------------------------------------------------------
 *
 * Arenas, texts, blocks and JSON documents never fail to grow: an allocation that cannot be met does
 * not return. It gives back all that was taken in this thread's innermost guard, newest first, and the
 * guard returns ERR_MEMORY. Nobody in between checks anything; but whoever has something else than
 * memory open across an allocation (a file, a mapping, a thread, a library's object) holds it. A command
 * is one guard; without a guard the process aborts. Memory of regions and of data files is large and
 * predictable: it does not come from here, and its want is an ordinary Status.
 *
 * What was there before the guard stays as it was, with two rules. Arenas from outside may grow inside;
 * texts and documents may not. A thing taken in a guard is given back by the thread that took it.
 */

typedef struct Held { struct Held *before, *after; void (*give_back)(void *what); void *what; } Held;
Status memory_guard(Status (*body)(void *user), void *user); // body's result, or ERR_MEMORY
// From now on `what` is given back if its guard is left. `held` stays where it is until it is dropped.
// give_back leaves alone what is held by itself: texts, blocks, arenas taken later.
void memory_hold(Held *held, void (*give_back)(void *what), void *what);
void memory_drop(Held *held);                                  // one never held is fine, if zeroed
_Noreturn void memory_fail(size_t bytes);                      // leaves the guard
// Blocks for those who need malloc, realloc, free.
void *memory_alloc(size_t bytes);                              // zeroed, aligned to 16
void *memory_grow(void *old, size_t bytes);
void memory_free(void *at);

/* arena.c: memory by lifetime ---------------------------------------------------------------- */

typedef struct Arena Arena;
Arena *arena_create(void);
void arena_destroy(Arena *arena);   // NULL is fine
void *arena_alloc(Arena *arena, size_t bytes);                 // zeroed, aligned to 16
void *arena_grow(Arena *arena, void *old, size_t old_bytes, size_t new_bytes); // rest zeroed
char *arena_strdup(Arena *arena, const char *text);
char *arena_strndup(Arena *arena, const char *text, size_t bytes);
char *arena_printf(Arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
size_t arena_bytes(const Arena *arena);                        // taken from the system
#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, n) ((type *)arena_alloc((arena), sizeof(type) * (size_t)(n)))

// Growable array in an arena: `type *items; uint32_t n, cap;` fields named by the caller.
// Returns the address of a new zeroed last element.
#define ARENA_PUSH(arena, items, n, cap)                                                           \
    ((n) == (cap)                                                                                  \
         ? ((items) = arena_grow((arena), (items), (size_t)(n) * sizeof *(items),                  \
                                 ((size_t)(cap) ? (size_t)(cap) * 2 : 16) * sizeof *(items)),      \
            (cap) = (cap) ? (cap) * 2 : 16, &(items)[(n)++])                                       \
         : &(items)[(n)++])

/* text.c: growing strings and exact numbers --------------------------------------------------- */

typedef struct Text { char *at; size_t bytes, cap; } Text; // always 0-terminated once non-empty
void text_finish(Text *text);                              // frees
void text_add(Text *text, const char *string);
void text_add_n(Text *text, const char *bytes, size_t n);
void text_printf(Text *text, const char *format, ...) PRINTF_LIKE(2, 3);
void text_vprintf(Text *text, const char *format, va_list list);
const char *text_cstr(const Text *text);                   // never NULL
// A double so that it reads back to the same bits, whatever the locale: C99 hex ("0x1.8p+1"), "inf",
// "-inf"; NaN is the caller's error. `text_parse_double` accepts exactly what this prints.
void text_add_double(Text *text, double value);
bool text_parse_double(const char *from, size_t bytes, double *value);
// A double in the fewest decimal digits that read back to the same bits ("0.1", "1e-06").
void text_add_decimal(Text *text, double value);
// Edit distance for "did you mean": the nearest of `words` within max(2, length / 2), else NULL.
const char *text_nearest(const char *word, const char *const *words, int n_words);

/* hash.c -------------------------------------------------------------------------------------- */

typedef struct Hash { uint64_t low, high; } Hash;          // XXH3, 128 bits
Hash hash_bytes(const void *bytes, size_t n);
// The same of many bytes: `pulse` is called every so often.
Hash hash_long(const void *bytes, size_t n, void (*pulse)(void *user), void *user);
void hash_hex(Hash hash, char hex[33]);
bool hash_parse(const char *hex, size_t n, Hash *hash);
static inline bool hash_equal(Hash a, Hash b) { return a.low == b.low && a.high == b.high; }
// Counter-based random numbers, the only kind in the project: a pure function of its arguments,
// (see hash.c); uniform in [0, 1) with 24 bits.
uint64_t hash_mix(uint64_t seed, uint64_t a, uint64_t b);
float hash_uniform(uint64_t seed, uint64_t a, uint64_t b);
double hash_normal(uint64_t seed, uint64_t a, uint64_t b);  // mean 0, standard deviation 1

/* file.c -------------------------------------------------------------------------------------- */

// Of a regular file, or of a pipe up to 64 MiB. 0-terminated.
Status file_read(const char *path, Arena *arena, char **bytes, size_t *n_bytes);
// Written beside `path` under a temporary name, synced, renamed: readers see the old or the new file.
// Links are followed, also to what is not there yet; what is no regular file (a device, a pipe) is written to, never
// replaced.
Status file_write_atomic(const char *path, const void *bytes, size_t n_bytes);
// The path that links lead to from `path`, whether something is there or not. False: they lead in circles, or it is too long.
bool file_target(const char *path, char out[4096 /* PATH_MAX */]);
Status file_make_dirs(const char *path);                    // like mkdir -p
bool file_exists(const char *path);
// Gives closed ones of the three standard streams a place, so that no other file gets their number
// and what is printed; writing to a held stdout fails.
void file_hold_standard(void);
double time_seconds(void);                                  // monotonic

/* log.c --------------------------------------------------------------------------------------- */

// One line to stderr. Level from MOEC_LOG: error, warn, info (default), debug.
typedef enum LogLevel { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;
void log_line(LogLevel level, const char *format, ...) PRINTF_LIKE(2, 3);
bool log_enabled(LogLevel level);
// From now on lines of this process begin with "[rank 3] "; of rank 0 as ever.
void log_rank(int rank);
const char *log_prefix(void);                               // "" or that, for who prints otherwise
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)

#endif
