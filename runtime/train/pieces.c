// SPDX-License-Identifier: Apache-2.0
// Which tensors the files of a checkpoint hold, and which parts of them are this rank's.
//
// The files hold what one rank would: every parameter of the model whole, in the model's order,
// experts by their number. A rank knows the parameters of its stage; stages tell each other theirs.
// What ranks have copies of (states) the first of them writes, and all read.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/train/checkpoint.h"

// A parameter as files hold it.
typedef struct Whole {
    const char *name;
    int state, per_expert, n_dims; // dims[0]: of all experts
    int64_t dims[PLAN_MAX_DIMS];
    int32_t number, stage;         // stage: the first that has it
    int64_t numbers;               // of the parameter, or of an expert's part
    int first[CHECKPOINT_FILES];   // its first tensor in each file; -1: it is not there
} Whole;

struct Pieces {
    const Plan *plan;
    Comm *comm;                    // NULL: one rank
    Whole *wholes;
    uint32_t n_wholes, cap_wholes;
    Tensor *tensors[CHECKPOINT_FILES];
    int n_tensors[CHECKPOINT_FILES];
};

static int member_of(const Comm *comm, PlanGroup group) {
    return comm ? comm_member(comm, group) : 0;
}

/* The model's parameters ----------------------------------------------------------------------- */

static void describe(const Plan *plan, Text *out) {
    for (uint32_t i = 0; i < plan->n_params; i++) {
        const PlanParam *param = &plan->params[i];
        int32_t number = plan->mesh.size[AXIS_pp] > 1 ? param->number : (int32_t)i;
        text_printf(out, "%d %d %d %d", number, param->is_state, param->per_expert, param->n_dims);
        for (int d = 0; d < param->n_dims; d++) {
            bool divided = param->experts && d == 0;
            text_printf(out, " %lld", (long long)(divided ? param->experts : param->dims[d]));
        }
        text_printf(out, " %s\n", param->name);
    }
}

// A line of that, 0-terminated; it was printed by this program.
static bool read_line(const char *line, Whole *out) {
    int at = 0, more = 0;
    if (sscanf(line, "%d %d %d %d%n", &out->number, &out->state, &out->per_expert, &out->n_dims, &at) != 4)
        return false;
    if (out->n_dims < 0 || out->n_dims > PLAN_MAX_DIMS) return false;
    out->numbers = 1;
    for (int d = 0; d < out->n_dims; d++, at += more) {
        long long size;
        if (sscanf(line + at, "%lld%n", &size, &more) != 1) return false;
        out->dims[d] = size;
        if (d >= out->per_expert) out->numbers *= size;
    }
    out->name = line + at + 1;
    return line[at] == ' ';
}

static Status read_text(Pieces *p, Arena *arena, char *text, int stage) {
    for (char *line = text; *line;) {
        char *end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        Whole *whole = ARENA_PUSH(arena, p->wholes, p->n_wholes, p->cap_wholes);
        whole->stage = stage;
        if (!read_line(line, whole))
            return status_fail(ERR_INTERNAL, "internal error: stage %d has '%s'", stage, line);
        line = end;
    }
    return OK;
}

// Trained parameters come first, as in the plan of one rank.
static int in_order(const void *left, const void *right) {
    const Whole *a = left, *b = right;
    if (a->state != b->state) return a->state - b->state;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return a->stage - b->stage;
}

static const Whole *whole_of(const Pieces *p, const char *name) {
    for (uint32_t i = 0; i < p->n_wholes; i++)
        if (!strcmp(p->wholes[i].name, name)) return &p->wholes[i];
    return NULL;
}

// What several stages read is the first's that trains it; with the others it is a state.
static Status list_wholes(Pieces *p, Arena *arena) {
    Text own = { 0 };
    describe(p->plan, &own);
    char *text = arena_strdup(arena, text_cstr(&own)), **texts = &text;
    text_finish(&own);
    int stages = p->comm ? comm_members(p->comm, GROUP_pp) : 1;
    if (stages > 1) TRY(comm_texts(p->comm, GROUP_pp, text, arena, &texts));
    for (int stage = 0; stage < stages; stage++) TRY(read_text(p, arena, texts[stage], stage));
    if (!p->n_wholes) return OK;
    qsort(p->wholes, p->n_wholes, sizeof *p->wholes, in_order);
    uint32_t n = p->n_wholes;
    p->n_wholes = 0;
    for (uint32_t i = 0; i < n; i++)
        if (!whole_of(p, p->wholes[i].name)) p->wholes[p->n_wholes++] = p->wholes[i];
    return OK;
}

/* The files' tensors --------------------------------------------------------------------------- */

static void list_tensors(Pieces *p, Arena *arena, int file) {
    int count = 0;
    for (uint32_t i = 0; i < p->n_wholes; i++)
        count += p->wholes[i].per_expert ? (int)p->wholes[i].dims[0] : 1;
    Tensor *tensors = p->tensors[file] = ARENA_ARRAY(arena, Tensor, count + 1);
    int n = 0;
    int64_t at = 0;
    for (uint32_t i = 0; i < p->n_wholes; i++) {
        Whole *whole = &p->wholes[i];
        int skip = whole->per_expert, parts = skip ? (int)whole->dims[0] : 1;
        whole->first[file] = file && whole->state ? -1 : n; // no moments of states
        for (int e = 0; e < parts && whole->first[file] >= 0; e++) {
            Tensor *tensor = &tensors[n++];
            tensor->name = skip ? arena_printf(arena, "%s.expert.%d", whole->name, e) : whole->name;
            tensor->n_dims = whole->n_dims - skip;
            memcpy(tensor->dims, whole->dims + skip, sizeof *whole->dims * (size_t)tensor->n_dims);
            tensor->bytes = whole->numbers * (int64_t)sizeof(float);
            tensor->offset = at;
            at += tensor->bytes;
        }
    }
    p->n_tensors[file] = n;
}

Status pieces_open(const Plan *plan, Comm *comm, Arena *arena, Pieces **out) {
    Pieces *p = *out = ARENA_NEW(arena, Pieces);
    p->plan = plan;
    p->comm = comm && comm->n_ranks > 1 ? comm : NULL;
    TRY(list_wholes(p, arena));
    for (int file = 0; file < CHECKPOINT_FILES; file++) list_tensors(p, arena, file);
    return OK;
}

const Tensor *pieces_tensors(const Pieces *pieces, int file, int *n) {
    *n = pieces->n_tensors[file];
    return pieces->tensors[file];
}

/* This rank's parts ---------------------------------------------------------------------------- */

// Of what has copies on other ranks this is the first.
static bool is_first(const Pieces *p, const PlanParam *param, const Whole *whole) {
    if (!p->comm) return true;
    if (p->comm->coord[AXIS_pp] != whole->stage) return false;
    bool copies = !plan_bucket(p->plan, param);
    return !copies || member_of(p->comm, param->experts ? GROUP_edp : GROUP_dp) == 0;
}

static float *memory_of(const Pieces *p, const TrainMemory *memory, const PlanParam *param, int file) {
    if (file) return file == 1 ? memory->moment1 : memory->moment2;
    return plan_bucket(p->plan, param) ? memory->master : memory->weights;
}

static PlanPart part_of(const Pieces *p, const PlanParam *param) {
    const PlanBucket *bucket = plan_bucket(p->plan, param);
    return plan_part(p->plan, param, bucket ? member_of(p->comm, (PlanGroup)bucket->group) : 0);
}

typedef struct PieceList {
    Arena *arena;
    TensorPiece *at;
    int n, cap;
} PieceList;

// Numbers [first, first + n) of the parameter as the plan has it; `memory` has the first of them.
static void add_pieces(const Pieces *p, const PlanParam *param, const Whole *whole, int file,
                       PlanPart part, float *memory, PieceList *list) {
    int64_t rows = param->per_expert ? param->dims[0] : 1;
    int32_t own = member_of(p->comm, GROUP_ep);
    for (int64_t row = 0; row < rows; row++) {
        int64_t begin = max_i64(part.first, row * whole->numbers),
                end = min_i64(part.first + part.n, (row + 1) * whole->numbers);
        if (end <= begin) continue;
        int tensor = whole->first[file] + (param->per_expert ? plan_expert(param, own, (int32_t)row) : 0);
        *ARENA_PUSH(list->arena, list->at, list->n, list->cap) =
            (TensorPiece){ tensor, (begin - row * whole->numbers) * (int64_t)sizeof(float),
                           (end - begin) * (int64_t)sizeof(float), memory + (begin - part.first) };
    }
}

const TensorPiece *pieces_list(const Pieces *p, const TrainMemory *memory, int file, bool writing,
                               Arena *arena, int *n) {
    PieceList list = { .arena = arena };
    for (uint32_t i = 0; i < p->plan->n_params; i++) {
        const PlanParam *param = &p->plan->params[i];
        const Whole *whole = whole_of(p, param->name);
        if ((file && param->is_state) || (writing && !is_first(p, param, whole))) continue;
        PlanPart part = part_of(p, param);
        add_pieces(p, param, whole, file, part,
                   memory_of(p, memory, param, file) + part.at / (int64_t)sizeof(float), &list);
    }
    *n = list.n;
    return list.at;
}
