// SPDX-License-Identifier: Apache-2.0
// Who started this process, and the transport for it. Launchers tell their processes by variables; what
// says that there is one rank only opens nothing.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/library.h"
#include "runtime/comm/process.h"
#include "runtime/comm/star.h"

static const struct { const char *size, *name; } launchers[] = {
    { "OMPI_COMM_WORLD_SIZE", "mpirun (Open MPI)" },
    { "PMI_SIZE", "mpirun (MPICH) or srun" },
    { "SLURM_STEP_NUM_TASKS", "srun" },
};

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

// srun without a process manager for MPI starts processes that do not know of each other.
static Status without_manager(int n) {
    return status_fail(ERR_ARGUMENT, "srun has started %d processes without MPI\n"
                       "  hint: srun --mpi=pmix -n %d ..., or mpirun -n %d ...", n, n, n);
}

static Status find_launcher(int *n_ranks, const char **name) {
    *n_ranks = 1;
    for (int i = 0; i < COUNT_OF(launchers); i++) {
        int n = number(launchers[i].size);
        if (n < 1) continue;
        bool slurm = strncmp(launchers[i].size, "SLURM", 5) == 0;
        if (slurm && n > 1 && !getenv("PMIX_RANK") && !getenv("PMI_RANK")) return without_manager(n);
        *n_ranks = n;
        *name = launchers[i].name;
        return OK;
    }
    return OK;
}

int comm_announced(void) {
    const char *launcher;
    int n;
    return find_launcher(&n, &launcher) == OK ? n : 1;
}

static Status find_engine(Arena *arena, const char *launcher, int n_ranks, const Engine **engine) {
    LibraryPlaces places = { .arena = arena };
    const char *given = getenv("MOEC_COMM_LIBRARY"), *where;
    void *handle, *entry;
    if (given) library_add(&places, given);
    else library_add_beside_binary(&places, "moec-mpi.so");
    const char *what = arena_printf(arena, "%s has started %d ranks; the module for MPI", launcher, n_ranks);
    TRY(library_open(&places, what,
                     "install Open MPI (./dev deps) and build again: moec-mpi.so comes with the build "
                     "where CMake finds MPI", &handle, &where));
    TRY(library_fill(handle, where, &(LibrarySymbol){ .name = ENGINE_ENTRY }, 1, &entry));
    const Engine *(*get)(void);
    memcpy(&get, &entry, sizeof get);
    *engine = get();
    if ((*engine)->version != ENGINE_VERSION)
        return status_fail(ERR_VERSION, "%s: expected version %d of the module, found %d\n"
                           "  hint: build it together with this program", where, ENGINE_VERSION,
                           (*engine)->version);
    return OK;
}

Status comm_open(const CommOptions *options, Comm **out) {
    CommOptions own = options ? *options : (CommOptions){ 0 };
    if (own.deadline <= 0) own.deadline = 8;
    const char *launcher;
    int n_ranks;
    TRY(find_launcher(&n_ranks, &launcher));
    if (n_ranks == 1 && star_started()) {
        StarPlace place;
        TRY(star_place(&place));
        return star_open(&place, out);
    }
    if (n_ranks == 1) {
        *out = comm_self();
        return OK;
    }
    const Engine *engine;
    Arena *arena = arena_create();
    Status status = find_engine(arena, launcher, n_ranks, &engine);
    if (status == OK) status = process_open(engine, &own, out);
    arena_destroy(arena);
    TRY(status);
    if ((*out)->n_ranks == n_ranks) return OK;
    status = status_fail(ERR_ARGUMENT, "%s has started %d ranks, the MPI that moec-mpi.so was built with "
                         "sees %d\n  hint: start them with that MPI's mpirun", launcher, n_ranks,
                         (*out)->n_ranks);
    comm_close(*out);
    return status;
}
