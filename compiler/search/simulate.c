// SPDX-License-Identifier: Apache-2.0
// Every stage goes on as far as it can, in turn, until none can. What a stage does depends on others only by
// messages and meetings, each of which has its time as soon as both ends have come to it; so the order in
// which stages are asked does not show, and no queue of events is needed.
#include <math.h>
#include <stdlib.h>

#include "compiler/search/simulate.h"

typedef struct Message {
    int64_t posted, ps;
    int64_t begin, taken;     // taken < 0: not yet
    uint32_t segment;
    int32_t slot;
} Message;

typedef struct Channel { // from one stage to another, one lane
    Message *items;
    uint32_t n, cap, next;    // next: to be taken
    int64_t free;             // when the last transfer has ended
} Channel;

typedef struct Transfer { // begun, not waited for
    int32_t op;
    int64_t end, behind;      // behind: of it, waiting for the busiest rank
} Transfer;

typedef struct Sent { uint32_t channel, message; } Sent;

// Where ranks share cores: when one begins or ends to wait for other stages, and how time passes because of it.
typedef struct Idle { int64_t at; bool ends; } Idle;
typedef struct ClockPoint { int64_t at; double passed, speed; } ClockPoint; // speed from there on
typedef struct Clock { ClockPoint *points; uint32_t n; } Clock;

typedef struct Rank {
    struct World *world;
    const SimStage *stage;
    const bool *last_row;
    int64_t now, behind;      // behind: that much later is the busiest rank
    int64_t *kind_ps, *link_ps, busy_ps;
    int64_t link_free[SIM_LINKS];
    int32_t row, at;          // at: op within the segment
    bool begun, arrived;      // of the row; at a meeting
    Transfer *transfers; uint32_t n_transfers, cap_transfers;
    Sent *sent; uint32_t n_sent, cap_sent;
} Rank;

typedef struct World {
    const SimOptions *options;
    double slower;            // contention - 1
    Rank *ranks; int32_t n;
    Channel *channels;        // [from][to][lane]
    const Clock *clock;       // NULL: as ranks that are never faster
    bool watched;             // for which idle is filled
    Idle *idle; uint32_t n_idle, cap_idle;
    Arena *arena;
} World;

const char *sim_kind_name(int kind) {
    return kind == SIM_IMBALANCE ? "imbalance" : kind == SIM_BUBBLE ? "bubble" : plan_work_names[kind];
}

/* Time ----------------------------------------------------------------------------------------- */

static int32_t stage_number(const World *w, const Rank *r) {
    return (int32_t)(r - w->ranks);
}

// What time it is at `ps` of ranks that are never faster.
static int64_t time_at(const World *w, int64_t ps) {
    if (!w->clock) return ps;
    uint32_t low = 0, high = w->clock->n; // the last point not behind it
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (w->clock->points[middle].at <= ps) low = middle;
        else high = middle;
    }
    const ClockPoint *p = &w->clock->points[low];
    return (int64_t)(p->passed + (double)(ps - p->at) / p->speed + 0.5);
}

static int64_t passed_ps(const World *w, int64_t begin, int64_t end) {
    return time_at(w, end) - time_at(w, begin);
}

static void tell(const World *w, const Rank *r, int32_t op, int64_t begin, int64_t end) {
    if (!w->options->span) return;
    w->options->span(w->options->user, stage_number(w, r), r->row, op, time_at(w, begin), time_at(w, end));
}

// The rank waits until `until`, which counts as `kind`.
static void wait_until(Rank *r, int64_t until, int kind) {
    World *w = r->world;
    if (until <= r->now) return;
    if (w->watched && kind == SIM_BUBBLE) {
        *ARENA_PUSH(w->arena, w->idle, w->n_idle, w->cap_idle) = (Idle){ r->now, false };
        *ARENA_PUSH(w->arena, w->idle, w->n_idle, w->cap_idle) = (Idle){ until, true };
    }
    r->kind_ps[kind] += passed_ps(w, r->now, until);
    r->now = until;
}

static int64_t part_ps(int64_t ps, double part) {
    return (int64_t)((double)ps * part + 0.5);
}

static double load_at(const World *w, const Rank *r, int32_t op) {
    const SimOptions *o = w->options;
    double load = o->load_of ? o->load_of(o->user, stage_number(w, r), r->row, op) : o->load;
    return load > 1 ? load : 1;
}

// What of an op's time only the busiest rank takes.
static int64_t uneven_ps(const World *w, const Rank *r, const SimOp *op, int32_t number) {
    return op->uneven ? part_ps(op->ps, load_at(w, r, number) - 1) : 0;
}

/* What a rank does ----------------------------------------------------------------------------- */

// Beside transfers under way work takes (1 + slower) times as long until the last of them ends.
static void compute(const World *w, Rank *r, const SimOp *op, int32_t number) {
    int64_t begin = r->now, until = 0;
    int kind = op->work;
    for (uint32_t i = 0; i < r->n_transfers; i++) {
        if (r->transfers[i].end <= until) continue;
        until = r->transfers[i].end;
        kind = r->stage->ops[r->transfers[i].op].work;
    }
    int64_t beside = until > begin ? until - begin : 0, slowed = op->ps + part_ps(op->ps, w->slower);
    // In `beside` fits beside / (1 + slower) of the work.
    if (slowed > beside) slowed = op->ps + beside - part_ps(beside, 1 / (1 + w->slower));
    int64_t passed = passed_ps(w, r->now, r->now + op->ps);
    r->kind_ps[op->work] += passed;
    r->busy_ps += passed;
    r->now += op->ps;
    wait_until(r, begin + slowed, kind);
    r->behind += uneven_ps(w, r, op, number);
    tell(w, r, number, begin, r->now);
}

// All have come when the busiest has.
static void catch_up(Rank *r) {
    wait_until(r, r->now + r->behind, SIM_IMBALANCE);
    r->behind = 0;
}

static void cross(const World *w, Rank *r, const SimOp *op, int32_t number) {
    int64_t begin = r->now;
    bool moves = op->work != WORK_barrier; // whose messages are too short to wait for others, or to be waited for
    catch_up(r);
    if (moves) wait_until(r, r->link_free[op->link], op->work);
    if (moves) r->link_ps[op->link] += passed_ps(w, r->now, r->now + op->ps);
    wait_until(r, r->now + op->ps, op->work);
    wait_until(r, r->now + uneven_ps(w, r, op, number), SIM_IMBALANCE);
    if (moves) r->link_free[op->link] = r->now;
    tell(w, r, number, begin, r->now);
}

static void start(const World *w, Rank *r, const SimOp *op, int32_t number) {
    int64_t begin = r->now > r->link_free[op->link] ? r->now : r->link_free[op->link];
    int64_t end = begin + r->behind + op->ps;
    *ARENA_PUSH(w->arena, r->transfers, r->n_transfers, r->cap_transfers) = (Transfer){ number, end, r->behind };
    r->link_free[op->link] = end;
    r->link_ps[op->link] += passed_ps(w, end - op->ps, end);
    tell(w, r, number, begin, end);
}

// What the busiest rank was behind at the start is the last part of the wait.
static void end_transfer(const World *w, Rank *r, const SimOp *op, int32_t number) {
    uint32_t i = 0;
    while (i < r->n_transfers && r->transfers[i].op != op->start) i++;
    if (i == r->n_transfers) return; // its start is in rows that did not do it
    Transfer t = r->transfers[i];
    memmove(&r->transfers[i], &r->transfers[i + 1], (--r->n_transfers - i) * sizeof t);
    int64_t begin = r->now;
    wait_until(r, t.end - t.behind, op->work);
    int64_t even = r->now;
    wait_until(r, t.end, SIM_IMBALANCE);
    r->behind = max_i64(r->behind - (r->now - even), 0);
    tell(w, r, number, begin, r->now);
}

/* Messages ------------------------------------------------------------------------------------- */

static uint32_t channel_number(const World *w, int32_t from, int32_t to, int lane) {
    return (uint32_t)((from * w->n + to) * N_LANES + lane);
}

// Both ends are there at `ready`.
static void transfer(Channel *c, Message *m, int64_t ready) {
    m->begin = max_i64(ready, c->free);
    m->taken = c->free = m->begin + m->ps;
}

static void send(const World *w, Rank *r, const SimOp *op, int32_t op_number) {
    uint32_t number = channel_number(w, stage_number(w, r), op->peer, op->lane);
    Channel *c = &w->channels[number];
    const PlanRow *row = &r->stage->rows[r->row];
    *ARENA_PUSH(w->arena, r->sent, r->n_sent, r->cap_sent) = (Sent){ number, c->n };
    Message *m = ARENA_PUSH(w->arena, c->items, c->n, c->cap);
    *m = (Message){ .posted = r->now, .ps = op->ps, .taken = -1, .segment = row->segment, .slot = row->slot };
    if (w->options->posted) transfer(c, m, r->now);
    tell(w, r, op_number, r->now, r->now);
}

// False: it has not been sent.
static bool recv(const World *w, Rank *r, const SimOp *op, int32_t number) {
    Channel *c = &w->channels[channel_number(w, op->peer, stage_number(w, r), op->lane)];
    if (c->next == c->n) return false;
    Message *m = &c->items[c->next++];
    int64_t begin = r->now;
    if (m->taken < 0) transfer(c, m, max_i64(m->posted, r->now));
    wait_until(r, m->begin, SIM_BUBBLE);
    wait_until(r, m->taken, WORK_messages);
    tell(w, r, number, begin, r->now);
    return true;
}

// What rows of this segment and slot (row NULL: all) have sent has been taken. False: not yet.
static bool settle(const World *w, Rank *r, const PlanRow *row) {
    int64_t begin = r->now;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_sent; i++) {
        const Message *m = &w->channels[r->sent[i].channel].items[r->sent[i].message];
        if ((!row || (m->segment == row->segment && m->slot == row->slot)) && m->taken < 0) return false;
    }
    for (uint32_t i = 0; i < r->n_sent; i++) {
        const Message *m = &w->channels[r->sent[i].channel].items[r->sent[i].message];
        if (row && (m->segment != row->segment || m->slot != row->slot)) {
            r->sent[kept++] = r->sent[i];
            continue;
        }
        wait_until(r, m->begin, SIM_BUBBLE);
        wait_until(r, m->taken, WORK_messages);
    }
    r->n_sent = kept;
    if (r->now > begin) tell(w, r, SPAN_TAKEN, begin, r->now);
    return true;
}

/* Stages --------------------------------------------------------------------------------------- */

static const SimOp *op_at(const Rank *r, int32_t *number) {
    const PlanSegment *segment = &r->stage->segments[r->stage->rows[r->row].segment];
    *number = segment->first + r->at;
    return r->at < segment->n ? &r->stage->ops[*number] : NULL;
}

static bool has_ended(const Rank *r) {
    return (uint32_t)r->row >= r->stage->n_rows;
}

// One step of a stage; false: it has to wait for another, or has ended.
static bool go_on(const World *w, Rank *r) {
    if (has_ended(r)) return r->n_sent && settle(w, r, NULL);
    if (!r->begun && !settle(w, r, &r->stage->rows[r->row])) return false;
    r->begun = true;
    int32_t number;
    const SimOp *op = op_at(r, &number);
    if (!op) {
        r->row++;
        r->at = 0;
        r->begun = false;
        return true;
    }
    if (!op->last || r->last_row[r->row]) {
        switch ((SimWhat)op->what) {
        case SIM_COMPUTE: compute(w, r, op, number); break;
        case SIM_CROSS: cross(w, r, op, number); break;
        case SIM_START: start(w, r, op, number); break;
        case SIM_WAIT: end_transfer(w, r, op, number); break;
        case SIM_SEND: send(w, r, op, number); break;
        case SIM_RECV:
            if (!recv(w, r, op, number)) return false;
            break;
        case SIM_MEET: r->arrived = true; return false;
        }
    }
    r->at++;
    return true;
}

// When all stages have come to it, it takes as long as the slowest says.
static bool meet(const World *w) {
    int64_t all = 0, ps = 0;
    int32_t number;
    for (int32_t s = 0; s < w->n; s++) {
        Rank *r = &w->ranks[s];
        if (!r->arrived) return false;
        ps = max_i64(ps, op_at(r, &number)->ps);
    }
    for (int32_t s = 0; s < w->n; s++) {
        Rank *r = &w->ranks[s];
        all = max_i64(all, r->now + r->behind);
    }
    for (int32_t s = 0; s < w->n; s++) {
        Rank *r = &w->ranks[s];
        const SimOp *op = op_at(r, &number);
        int64_t begin = r->now;
        catch_up(r);
        wait_until(r, all, SIM_BUBBLE);
        wait_until(r, all + ps, op->work);
        tell(w, r, number, begin, r->now);
        r->arrived = false;
        r->at++;
    }
    return true;
}

/* The end -------------------------------------------------------------------------------------- */

static Status refuse(const World *w, const Rank *r) {
    int32_t s = stage_number(w, r), number;
    if (has_ended(r))
        return status_fail(ERR_INPUT, "stage %d waits for ever at its end: nobody takes what it sent", s);
    const PlanRow *row = &r->stage->rows[r->row];
    const SimOp *op = op_at(r, &number);
    const char *name = r->stage->segments[row->segment].name;
    if (!r->begun)
        return status_fail(ERR_INPUT,
                           "stage %d waits for ever before \"%s\" of microbatch %d: nobody takes what the row "
                           "that had its slot sent",
                           s, name, row->microbatch);
    if (op->what == SIM_MEET)
        return status_fail(ERR_INPUT, "stage %d waits for ever in \"%s\", for all stages to come to its op %d", s, name,
                           number);
    return status_fail(ERR_INPUT,
                       "stage %d waits for ever in \"%s\" of microbatch %d, for a message from stage %d", s, name,
                       row->microbatch, op->peer);
}

static bool *last_rows(const SimStage *stage, Arena *arena) {
    bool *last = ARENA_ARRAY(arena, bool, stage->n_rows + 1),
         *seen = ARENA_ARRAY(arena, bool, stage->n_segments + 1);
    for (uint32_t r = stage->n_rows; r-- > 0;) {
        last[r] = !seen[stage->rows[r].segment];
        seen[stage->rows[r].segment] = true;
    }
    return last;
}

static void set_up(World *w, const SimStage *stages, Sim *out) {
    out->n = w->n;
    out->stage_ps = arena_alloc(w->arena, sizeof *out->stage_ps * (size_t)w->n);
    out->link_ps = arena_alloc(w->arena, sizeof *out->link_ps * (size_t)w->n);
    out->busy_ps = ARENA_ARRAY(w->arena, int64_t, w->n);
    w->ranks = ARENA_ARRAY(w->arena, Rank, w->n);
    w->channels = ARENA_ARRAY(w->arena, Channel, (size_t)w->n * (size_t)w->n * N_LANES);
    for (int32_t s = 0; s < w->n; s++)
        w->ranks[s] = (Rank){ .world = w,
                              .stage = &stages[s],
                              .last_row = last_rows(&stages[s], w->arena),
                              .kind_ps = out->stage_ps[s],
                              .link_ps = out->link_ps[s] };
}

// A program ends when all that it has begun has.
static void end_transfers(Rank *r) {
    for (uint32_t i = 0; i < r->n_transfers; i++) {
        const Transfer *t = &r->transfers[i];
        wait_until(r, t->end - t->behind, r->stage->ops[t->op].work);
        wait_until(r, t->end, SIM_IMBALANCE);
    }
}

static Status conclude(World *w, Sim *out) {
    int64_t last = 0;
    for (int32_t s = 0; s < w->n; s++) {
        if (!has_ended(&w->ranks[s]) || w->ranks[s].n_sent) return refuse(w, &w->ranks[s]);
        end_transfers(&w->ranks[s]);
        catch_up(&w->ranks[s]);
        last = max_i64(last, w->ranks[s].now);
    }
    for (int32_t s = 0; s < w->n; s++) {
        wait_until(&w->ranks[s], last, SIM_BUBBLE);
        out->busy_ps[s] = w->ranks[s].busy_ps;
    }
    out->step_ps = time_at(w, last);
    return OK;
}

// No step is longer than everything in turn, each op with the busiest rank's load and slowed down.
static Status check_length(const SimStage *stages, int32_t n, const SimOptions *options) {
    double seconds = 0;
    for (int32_t s = 0; s < n; s++) {
        for (uint32_t k = 0; k < stages[s].n_segments; k++) {
            const PlanSegment *segment = &stages[s].segments[k];
            double once = 0, rows = 0;
            for (int32_t i = 0; i < segment->n; i++) once += (double)stages[s].ops[segment->first + i].ps * 1e-12;
            for (uint32_t r = 0; r < stages[s].n_rows; r++) rows += stages[s].rows[r].segment == k;
            seconds += once * rows;
        }
    }
    seconds *= fmax(options->load, 1) * fmax(options->contention, 1);
    if (seconds < SIM_LONGEST_S) return OK;
    return status_fail(ERR_INPUT, "a step of %.3g days, expected up to %.0f: the simulator counts picoseconds\n"
                                  "  hint: fewer tokens, or a faster machine", seconds / 86400, SIM_LONGEST_S / 86400);
}

/* Shared cores --------------------------------------------------------------------------------- */

static int by_time(const void *left, const void *right) {
    const Idle *a = left, *b = right;
    return (a->at > b->at) - (a->at < b->at);
}

// All ranks that work at a moment are equally fast, so they do what they would if none were ever faster, in the same order;
// only time passes faster, as many times as there are ranks for one that works, up to `sharing`.
static void fill_clock(World *w, double sharing, Clock *clock) {
    int32_t busy = w->n;
    if (w->n_idle) qsort(w->idle, w->n_idle, sizeof *w->idle, by_time);
    clock->points = ARENA_ARRAY(w->arena, ClockPoint, w->n_idle + 1);
    clock->points[0] = (ClockPoint){ .speed = 1 };
    clock->n = 1;
    for (uint32_t i = 0; i < w->n_idle; i++) {
        ClockPoint *last = &clock->points[clock->n - 1];
        int64_t since = w->idle[i].at - last->at;
        if (since > 0) {
            last[1] = (ClockPoint){ w->idle[i].at, last->passed + (double)since / last->speed, 1 };
            last = &clock->points[clock->n++];
        }
        busy += w->idle[i].ends ? 1 : -1;
        last->speed = busy > 0 ? fmin(sharing, (double)w->n / busy) : sharing;
    }
}

static Status run(World *w, const SimStage *stages, Sim *out) {
    *out = (Sim){ 0 };
    set_up(w, stages, out);
    for (bool any = true; any;) {
        any = false;
        for (int32_t s = 0; s < w->n; s++)
            while (go_on(w, &w->ranks[s])) any = true;
        any |= meet(w);
    }
    return conclude(w, out);
}

Status simulate(const SimStage *stages, int32_t n, const SimOptions *options, Arena *arena, Sim *out) {
    World w = { .options = options, .n = n, .arena = arena };
    *out = (Sim){ 0 };
    TRY(check_length(stages, n, options));
    if (options->contention > 1) w.slower = options->contention - 1;
    if (!(options->sharing > 1)) return run(&w, stages, out);
    SimOptions quiet = *options;
    quiet.span = NULL;
    World first = w;
    first.options = &quiet;
    first.watched = true;
    TRY(run(&first, stages, out));
    Clock clock = { 0 };
    fill_clock(&first, options->sharing, &clock);
    w.clock = &clock;
    return run(&w, stages, out);
}

double sim_share_s(const Sim *sim, int kind) {
    double ps = 0;
    for (int32_t s = 0; s < sim->n; s++) ps += (double)sim->stage_ps[s][kind];
    return ps * 1e-12 / sim->n;
}
