// SPDX-License-Identifier: Apache-2.0
// Source to function: the host's C compiler, and the kernel cache on disk.
//
// Cache: $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec, else ~/.cache/moec. Content-addressed,
// self-validating files; written under a temporary name and renamed; safe for many processes at once. A
// damaged or foreign entry is a miss, never an error. Compiler: $MOEC_CC, else clang-19, else clang, else
// gcc. The key holds format version, source text, flags, instruction-set level and compiler identity.
#ifndef MOEC_JIT_H
#define MOEC_JIT_H

#include "runtime/plan/plan.h"

typedef struct Jit Jit; // loaded objects; functions live as long as it

/* share.c: ranks that compile together --------------------------------------------------------- */

// How ranks that start at once speak to each other; they load their kernels at the same time.
typedef struct JitShare {
    int rank, n;
    uint64_t place;              // equal where ranks have one cache
    int cores;                   // for this rank's compilers
    Status (*gather)(void *user, const void *from, void *to, int64_t bytes); // to [n][bytes]
    Status (*agree)(void *user, Status status); // OK if it went well on all
    void (*pulse)(void *user);   // called about every second while compilers run
    void *user;
} JitShare;
// mine[i]: this rank is the one to compile the source that keys[i] names, of those it lacks.
Status share_deal(const JitShare *share, const Hash *keys, int64_t n, Arena *arena, bool *mine);

/* jit.c */
// share NULL: one rank.
Status jit_load(const Plan *plan, void (*progress)(void *user, int done, int total, int cached), void *user, const JitShare *share, Jit **out);
void jit_destroy(Jit *jit);                                    // NULL is fine
// The ENTRY_launch function of a kernel.
void (*jit_function(const Jit *jit, uint32_t kernel))(void *const *args, int64_t tile_begin, int64_t tile_end);
const char *jit_cache_dir(Arena *arena);                       // created on demand by its users

/* cuda.c: sources of a plan for GPUs ----------------------------------------------------------- */

// Through NVRTC, which is looked for in $MOEC_NVRTC, the system's search, $CUDA_HOME, $CUDA_PATH and the
// usual folders of the toolkit. One source is one program: prelude, then the source. No header is
// included, and nothing is contracted: a multiply-add is one where the source says fma. Each ends in
// the cache under format, prelude, source, architecture, options and NVRTC's version.
enum { JIT_PTX = 1, JIT_CUBIN = 2 };
typedef struct JitImage {
    const char *ptx, *cubin, *log; // NULL: not asked for; log: the assembler's, of a cubin
    size_t n_ptx, n_cubin, n_log;
    double ms;                     // of a processor, of its compilation, whenever that was
    bool cached;
} JitImage;
// For every source that a kernel needs: images[plan->n_sources], all in `arena`. arch: "sm_90a".
Status jit_cuda(const Plan *plan, const char *arch, int code, void (*progress)(void *user, int done, int total, int cached), void *user, const JitShare *share, Arena *arena, JitImage **images);
// The program of a source, 0-terminated: compiles alone.
char *jit_cuda_program(const Plan *plan, uint32_t source, Arena *arena);
Status jit_cuda_compiler(int *major, int *minor);              // NVRTC's version

/* cubin.c: what the assembler made of a kernel ------------------------------------------------- */

enum { CUBIN_MOST_PARAMS = 128 };
typedef struct CubinKernel {
    int registers, frame /* bytes of local memory of a thread */, shared /* static */;
    int spill_stores, spill_loads; // bytes; from the log
    uint32_t param_bytes, n_params;
    struct { uint32_t offset, bytes; } params[CUBIN_MOST_PARAMS];
} CubinKernel;
Status cubin_read(const char *cubin, size_t n, const char *entry, CubinKernel *out);
void cubin_read_log(const char *log, const char *entry, CubinKernel *out); // adds the spills
// Fails unless parameter i lies at 8 * i with 8 bytes, for each of the kernel's: the launch table.
Status cubin_check(const PlanKernel *kernel, const CubinKernel *found);

/* cache.c: blobs by key, also used by compiler/codegen for launch tables read by libclang */
Status cache_get(const char *dir, Hash key, Arena *arena, char **bytes, size_t *n); // OK and *bytes NULL: miss
// Of what `head` says (compiler, flags), the prelude and the source; finishes `head`.
Hash cache_source_key(Text *head, const Plan *plan, uint32_t source);
Status cache_put(const char *dir, Hash key, const void *bytes, size_t n);

#endif
