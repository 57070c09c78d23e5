// SPDX-License-Identifier: Apache-2.0
// A rank that is a process trains a model for some steps under a layout. Rank 0 keeps what came of it, and
// compares it with what one rank has kept (--against): the first step's gradients, every step's loss; or with
// an earlier run of the layout of as many steps or more (--same), of which it is to be the beginning, bit by bit.
//
//   moec-world SPEC LAYOUT [key=value...] --out FILE [--against FILE] [--same FILE] [--sequences N]
//              [--steps N] [--device NAME]
//
// sequences: of a step, of all ranks; a microbatch has one, unless the layout says. Exit status 1: too far apart.
#include "tests/layouts/world.h"

#include <stdio.h>
#include <stdlib.h>

static const double MOST_GRADIENT = 1e-5, MOST_LOSS = 1e-6;

typedef struct Call {
    WorldJob job;
    const char *layout, *out, *against, *same;
    int sequences;
} Call;

_Noreturn static void give_up(const char *what) {
    fprintf(stderr, "moec-world: %s\n", what);
    exit(2);
}

static void read_option(Call *call, const char *flag, const char *value) {
    if (!strcmp(flag, "--out")) call->out = value;
    else if (!strcmp(flag, "--against")) call->against = value;
    else if (!strcmp(flag, "--same")) call->same = value;
    else if (!strcmp(flag, "--sequences")) call->sequences = atoi(value);
    else if (!strcmp(flag, "--steps")) call->job.steps = atoi(value);
    else if (!strcmp(flag, "--device")) call->job.device = value;
    else give_up("unknown option");
}

static void read_word(Call *call, char *word) {
    WorldJob *job = &call->job;
    char *equals = strchr(word, '=');
    if (!job->spec) {
        job->spec = word;
    } else if (!call->layout) {
        call->layout = word;
    } else if (equals && job->n_args < COUNT_OF(job->args)) {
        *equals = 0;
        job->args[job->n_args++] = (SpecArg){ word, equals + 1 };
    } else {
        give_up("expected SPEC LAYOUT key=value.. and options");
    }
}

static void read_args(Call *call, int argc, char **argv, Arena *arena) {
    WorldJob *job = &call->job;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2)) read_word(call, argv[i]);
        else if (i + 1 == argc) give_up("a value is missing");
        else read_option(call, argv[i], argv[i + 1]), i++;
    }
    if (!call->layout || !call->out) give_up("expected SPEC LAYOUT --out FILE");
    job->layout = layout_single();
    if (layout_parse(call->layout, arena, &job->layout) != OK) give_up(status_message());
    job->microbatch = job->layout.microbatch ? job->layout.microbatch : 1;
    job->microbatches = call->sequences / (job->layout.dp * job->microbatch);
    if (job->microbatches * job->layout.dp * job->microbatch != call->sequences || !job->microbatches)
        give_up("sequences do not divide over the ranks");
}

static double largest(const double *values, int n) {
    double most = 0;
    for (int i = 0; i < n; i++) most = values[i] > most ? values[i] : most;
    return most;
}

static bool is_same(const Call *call, const World *world) {
    World *other = world_read(call->same);
    size_t steps = (size_t)world->steps * sizeof(double);
    bool same = world->steps <= other->steps && world->n_params == other->n_params &&
                !memcmp(world->losses, other->losses, steps) && !memcmp(world->norms, other->norms, steps);
    for (uint32_t i = 0; same && i < world->n_params; i++) {
        const WorldParam *x = &world->params[i], *y = &other->params[i];
        same = x->n == y->n && (x->is_state || !memcmp(x->gradient, y->gradient, (size_t)x->n * sizeof(float)));
    }
    if (!same) printf("%s: a second run has other bits\n", call->layout);
    world_free(other);
    return same;
}

// What the comparison rests on; then how far apart the two are, as a row of a table.
static int judge(const Call *call, const World *world) {
    if (largest(world->dropped, world->steps) > 0) give_up("rows were dropped");
    if (world->norms[0] <= call->job.clip) give_up("no gradient was clipped");
    if (call->same) return is_same(call, world) ? 0 : 1;
    printf("%-46s %5d  ", call->layout, world->n_ranks);
    if (!call->against) {
        printf("loss %.6f to %.6f\n", world->losses[0], world->losses[world->steps - 1]);
        return 0;
    }
    World *one = world_read(call->against);
    const char *where = "";
    double gradient = world_gradient_error(world, one, &where), loss = world_loss_error(world, one);
    bool good = gradient <= MOST_GRADIENT && loss <= MOST_LOSS;
    printf("%9.2g %9.2g  %s%s\n", gradient, loss, where, good ? "" : "  too far apart");
    world_free(one);
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    Call call = { .job = { .steps = 50, .clip = 1, .lr = 3e-4, .decay = 0.1 }, .sequences = 8 };
    Arena *arena = arena_create();
    read_args(&call, argc, argv, arena);
    if (comm_open(&(CommOptions){ .deadline = 60 }, &call.job.comm) != OK) give_up(status_message());
    Comm *comm = call.job.comm;
    if (comm->n_ranks != layout_ranks(&call.job.layout)) give_up("another number of ranks was started");
    World *world = world_run(&call.job);
    int result = 0;
    if (comm->rank == 0) {
        world_save(world, call.out);
        result = judge(&call, world);
    }
    world_free(world);
    comm_close(comm);
    arena_destroy(arena);
    return result;
}
