// SPDX-License-Identifier: Apache-2.0
// Figures of a transport: the calls that plans make, by bytes, and rows that are put and fetched by address.
#include <math.h>

#include "compiler/driver/measure.h"
#include "runtime/comm/comm.h"

enum { SIZES = 6, LARGEST = 16 << 20, ROW_BYTES = 2048, ROWS = LARGEST / ROW_BYTES };

typedef struct Talk {
    Comm *comm;
    const MeasureOptions *options;
    PlanGroup group;
    int members;
    char *from, *to;
} Talk;

static Status call(Talk *t, CostCollective what, int64_t bytes) {
    const CommApi *api = t->comm->api;
    int64_t part = bytes / t->members;
    if (what == COLLECTIVE_gather) return api->gather(t->comm, t->group, t->from, t->to, part);
    if (what != COLLECTIVE_send) return api->exchange(t->comm, t->group, t->from, t->to, part);
    // There and back between the first two; the others wait at the next barrier.
    int me = comm_member(t->comm, t->group), other = comm_world_rank(t->comm, t->group, !me);
    if (me > 1) return OK;
    void *ticket;
    for (int turn = 0; turn < 2; turn++) {
        if (turn == me) {
            TRY(api->send(t->comm, other, LANE_forward, t->from, bytes, &ticket));
            TRY(api->sent(t->comm, ticket));
        } else {
            TRY(api->recv(t->comm, other, LANE_forward, t->to, bytes));
        }
    }
    return OK;
}

// Of one call, over n of them: the slowest rank's, in whole nanoseconds.
static Status time_calls(Talk *t, CostCollective what, int64_t bytes, int64_t n, double *seconds) {
    TRY(t->comm->api->barrier(t->comm, t->group));
    double start = time_seconds();
    for (int64_t i = 0; i < n; i++) TRY(call(t, what, bytes));
    int64_t slowest = (int64_t)((time_seconds() - start) * 1e9);
    TRY(comm_first(t->comm, &slowest, sizeof slowest));
    *seconds = (double)slowest * 1e-9 / (double)n;
    return OK;
}

static Status measure_size(Talk *t, CostCollective what, int64_t bytes, double *seconds) {
    double once;
    int64_t n;
    TRY(time_calls(t, what, bytes, 2, &once));
    n = (int64_t)fmin(fmax(t->options->seconds / (SIZES * fmax(once, 1e-7)), 3), 100000);
    TRY(comm_first(t->comm, &n, sizeof n));
    return time_calls(t, what, bytes, n, seconds);
}

static Status measure_curve(Talk *t, CostCollective what, CostCurve *out) {
    *out = (CostCurve){ .ranks = t->members, .evidence = EVIDENCE_measured };
    for (int64_t bytes = 16384; bytes <= LARGEST; bytes *= 4) {
        double s;
        TRY(measure_size(t, what, bytes, &s));
        if (what == COLLECTIVE_send) s /= 2; // there and back
        double leaves = what == COLLECTIVE_send ? (double)bytes : (double)bytes * (t->members - 1) / t->members;
        out->x[out->n] = leaves;
        out->y[out->n++] = s;
    }
    return OK;
}

// Rows to the next rank's window, then from it. A rank that does not see that one's (it is on another node) waits for the
// others.
static Status measure_rows(Talk *t, CostLink *link) {
    const CommApi *api = t->comm->api;
    void *own, *peers[1 << 10];
    if (!api->window || t->members > (int)COUNT_OF(peers)) return OK;
    TRY(api->window(t->comm, (int64_t)ROWS * ROW_BYTES, &own, peers));
    char *peer = peers[(comm_member(t->comm, GROUP_dp) + 1) % t->members];
    for (int back = 0; back < 2; back++) {
        TRY(api->barrier(t->comm, t->group));
        double start = time_seconds(), passes = 0;
        for (; peer && time_seconds() < start + t->options->seconds / 4; passes++) {
            for (int i = 0; i < ROWS; i++) {
                int64_t at = (int64_t)(i * 37 % ROWS) * ROW_BYTES;
                if (back) memcpy(t->to + at, peer + at, ROW_BYTES);
                else memcpy(peer + at, t->from + at, ROW_BYTES);
            }
        }
        if (peer) link->row_bytes_per_s[back] = passes * ROWS * ROW_BYTES / (time_seconds() - start);
    }
    TRY(api->barrier(t->comm, t->group));
    api->release(t->comm, own, (int64_t)ROWS * ROW_BYTES);
    return OK;
}

static Status measure_all(Talk *t, CostLink *out) {
    for (CostCollective what = 0; what < N_COLLECTIVES; what++) {
        TRY(t->options->pulse(t->options->user, cost_collective_name[what]));
        if (what == COLLECTIVE_reduce_scatter) { // is an exchange, and the sum is a kernel's
            out->n_curves[what] = 0;
            continue;
        }
        TRY(measure_curve(t, what, &out->curves[what][0]));
        out->n_curves[what] = 1;
    }
    out->curves[COLLECTIVE_reduce_scatter][0] = out->curves[COLLECTIVE_all_to_all][0];
    out->n_curves[COLLECTIVE_reduce_scatter] = 1;
    TRY(t->options->pulse(t->options->user, "rows"));
    return measure_rows(t, out);
}

Status measure_link(Comm *comm, const MeasureOptions *options, CostLink *out) {
    Talk talk = { .comm = comm, .options = options, .group = GROUP_ep, .members = comm->n_ranks,
                  .from = memory_alloc(LARGEST), .to = memory_alloc(LARGEST) };
    *out = (CostLink){ .name = "ranks", .size = comm->n_ranks, .share = 1, .evidence = EVIDENCE_measured,
                       .row_evidence = EVIDENCE_measured };
    Status status = measure_all(&talk, out);
    memory_free(talk.from);
    memory_free(talk.to);
    TRY(status);
    const CostCurve *curve = &out->curves[COLLECTIVE_all_to_all][0];
    out->latency_s = curve->y[0];
    for (int what = 0; what < N_COLLECTIVES; what++) {
        curve = &out->curves[what][0];
        for (int i = 0; i < curve->n; i++) out->bytes_per_s = fmax(out->bytes_per_s, curve->x[i] / curve->y[i]);
    }
    for (int back = 0; back < 2; back++) out->bytes_per_s = fmax(out->bytes_per_s, out->row_bytes_per_s[back]);
    out->row_fixed_s = out->latency_s;
    return OK;
}
