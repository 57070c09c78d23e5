// SPDX-License-Identifier: Apache-2.0
// A star: rank 0 listens, the others connect and stay connected. A call of any group is one of all ranks
// at once, as ranks make the same calls in the same order: everybody's bytes go to rank 0 and all of
// them come back, and each takes what it was given. That is enough for ids, decisions, records.
//
// torchrun keeps a store of its own at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), so rank 0 takes the
// first free port behind it, of few, and the others look for who answers with the right words: magic,
// version, job, number of ranks.
//
// A connection that ends is a rank that is gone. Rank 0 hears it of anyone and tells all.
#include "runtime/comm/star.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORTS = 8, MAGIC = 0x6d6f6563, VERSION = 1, TEXT = 512, MOST = 1 << 30 };

typedef struct Hello { uint32_t magic, version, n_ranks, rank; uint64_t job; } Hello;

// What precedes bytes: of the `turn`-th call, or the text of a failure.
typedef enum Kind { KIND_CALL = 1, KIND_FAILURE } Kind;
typedef struct Frame { uint32_t kind, turn; int64_t bytes; } Frame;

typedef struct Star {
    Comm base;
    double deadline;
    int *ends;          // of rank 0: by rank; else ends[0]: to rank 0. -1: none
    int *nodes;         // [n_ranks] the lowest rank of each one's node
    uint32_t turn;
    char failed[TEXT];  // why nothing more is said
} Star;

static Star *star_of(Comm *comm) {
    return (Star *)comm;
}

/* torchrun's variables ------------------------------------------------------------------------- */

bool star_started(void) {
    const char *size = getenv("WORLD_SIZE");
    return size && atoi(size) > 1 &&
           (getenv("TORCHELASTIC_RUN_ID") || (getenv("LOCAL_RANK") && getenv("MASTER_ADDR")));
}

static Status number(const char *name, int lowest, int highest, int *out) {
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : 0;
    if (text && *text && !*end && value >= lowest && value <= highest) {
        *out = (int)value;
        return OK;
    }
    return status_fail(ERR_ARGUMENT, "expected %s between %d and %d, found %s%s%s\n"
                       "  hint: torchrun sets it, as it does MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE and "
                       "LOCAL_RANK", name, lowest, highest, text ? "'" : "none", text ? text : "",
                       text ? "'" : "");
}

Status star_place(StarPlace *out) {
    const char *store = getenv("TORCHELASTIC_USE_AGENT_STORE"), *job = getenv("TORCHELASTIC_RUN_ID");
    *out = (StarPlace){ .address = getenv("MASTER_ADDR"), .job = job ? job : "", .deadline = 600 };
    TRY(number("WORLD_SIZE", 1, 65536, &out->n_ranks));
    TRY(number("RANK", 0, out->n_ranks - 1, &out->rank));
    TRY(number("LOCAL_RANK", 0, out->rank, &out->local_rank));
    TRY(number("MASTER_PORT", 1, 65535 - PORTS, &out->port));
    if (!out->address || !*out->address)
        return status_fail(ERR_ARGUMENT, "expected MASTER_ADDR, found none\n"
                           "  hint: it names rank 0's machine; torchrun sets it");
    out->port += store && (!strcmp(store, "True") || !strcmp(store, "1"));
    return OK;
}

/* Bytes ---------------------------------------------------------------------------------------- */

// False: the connection has ended, or nothing came or went in time.
static bool ready(int end, short what, double seconds) {
    struct pollfd poll_end = { end, what, 0 };
    int n;
    do n = poll(&poll_end, 1, (int)(seconds * 1e3));
    while (n < 0 && errno == EINTR);
    return n == 1;
}

static bool give(int end, const void *bytes, int64_t n, double seconds) {
    for (int64_t done = 0; done < n;) {
        ssize_t one = send(end, (const char *)bytes + done, (size_t)(n - done), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (one > 0) done += one;
        else if (one < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (!ready(end, POLLOUT, seconds)) return false;
        } else return false;
    }
    return true;
}

static bool take(int end, void *bytes, int64_t n, double seconds) {
    for (int64_t done = 0; done < n;) {
        if (!ready(end, POLLIN, seconds)) return false;
        ssize_t one = recv(end, (char *)bytes + done, (size_t)(n - done), 0);
        if (one > 0) done += one;
        else if (one == 0 || errno != EINTR) return false;
    }
    return true;
}

/* Failing -------------------------------------------------------------------------------------- */

static Status over(const Star *s) {
    return status_fail(ERR_RANK, "%s", s->failed);
}

// Whoever may still listen hears it too.
static Status fail(Star *s, const char *why) {
    if (s->failed[0]) return over(s);
    snprintf(s->failed, sizeof s->failed, "%s", why);
    Frame frame = { KIND_FAILURE, s->turn, sizeof s->failed };
    for (int i = 0; i < (s->base.rank ? 1 : s->base.n_ranks); i++)
        if (s->ends[i] >= 0 && give(s->ends[i], &frame, sizeof frame, 1))
            give(s->ends[i], s->failed, sizeof s->failed, 1);
    return over(s);
}

static Status lost(Star *s, int rank) {
    char text[TEXT];
    snprintf(text, sizeof text, "rank %d is gone, or has said nothing for %.0f s: rank %d waits for it", rank,
             s->deadline, s->base.rank);
    return fail(s, text);
}

/* Calls ---------------------------------------------------------------------------------------- */

// Of rank `rank`, at `end`: the frame of this turn. A failure that it tells becomes ours.
static Status take_frame(Star *s, int end, int rank, int64_t bytes) {
    Frame frame;
    char text[TEXT];
    if (!take(end, &frame, sizeof frame, s->deadline)) return lost(s, rank);
    if (frame.kind == KIND_FAILURE && frame.bytes == TEXT && take(end, text, TEXT, s->deadline)) {
        text[TEXT - 1] = 0;
        return fail(s, text);
    }
    if (frame.kind == KIND_CALL && frame.turn == s->turn && frame.bytes == bytes) return OK;
    snprintf(text, sizeof text, "internal error: rank %d is in call %u of %lld bytes, rank %d in call %u of %lld",
             s->base.rank, s->turn, (long long)bytes, rank, frame.turn, (long long)frame.bytes);
    return fail(s, text);
}

// own -> all [n_ranks][bytes], of all ranks.
static Status share(Star *s, const void *own, char *all, int64_t bytes) {
    int n = s->base.n_ranks;
    if (s->failed[0]) return over(s);
    if (bytes * n > MOST) return status_fail(ERR_ARGUMENT, "%lld bytes between hosts", (long long)bytes * n);
    s->turn++;
    Frame out = { KIND_CALL, s->turn, bytes }, back = { KIND_CALL, s->turn, bytes * n };
    if (s->base.rank) {
        int end = s->ends[0];
        if (!give(end, &out, sizeof out, s->deadline) || !give(end, own, bytes, s->deadline)) return lost(s, 0);
        TRY(take_frame(s, end, 0, back.bytes));
        return take(end, all, back.bytes, s->deadline) ? OK : lost(s, 0);
    }
    memcpy(all, own, (size_t)bytes);
    for (int i = 1; i < n; i++) {
        TRY(take_frame(s, s->ends[i], i, bytes));
        if (!take(s->ends[i], all + i * bytes, bytes, s->deadline)) return lost(s, i);
    }
    for (int i = 1; i < n; i++)
        if (!give(s->ends[i], &back, sizeof back, s->deadline) ||
            !give(s->ends[i], all, back.bytes, s->deadline))
            return lost(s, i);
    return OK;
}

static Status star_barrier(Comm *comm, PlanGroup group) {
    (void)group;
    char none, *all = memory_alloc((size_t)comm->n_ranks);
    Status status = share(star_of(comm), &none, all, 0);
    memory_free(all);
    return status;
}

static Status star_gather(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    char *all = memory_alloc((size_t)(bytes * comm->n_ranks) + 1);
    Status status = share(star_of(comm), from, all, bytes);
    for (int i = 0, n = comm_members(comm, group); status == OK && i < n; i++)
        memcpy((char *)to + i * bytes, all + comm_world_rank(comm, group, i) * bytes, (size_t)bytes);
    memory_free(all);
    return status;
}

static Status star_exchange(Comm *comm, PlanGroup group, const void *from, void *to, int64_t bytes) {
    int n = comm_members(comm, group), own = comm_member(comm, group);
    char *all = memory_alloc((size_t)(bytes * n * comm->n_ranks) + 1);
    Status status = share(star_of(comm), from, all, bytes * n);
    for (int i = 0; status == OK && i < n; i++)
        memcpy((char *)to + i * bytes, all + (comm_world_rank(comm, group, i) * n + own) * bytes, (size_t)bytes);
    memory_free(all);
    return status;
}

static int star_node(const Comm *comm, int rank) {
    return ((const Star *)comm)->nodes[rank];
}

// A word that has come but is not of this call can only be a failure's: calls are made together.
static Status star_check(Comm *comm) {
    Star *s = star_of(comm);
    if (s->failed[0]) return over(s);
    for (int i = 0; i < (comm->rank ? 1 : comm->n_ranks); i++) {
        Frame frame;
        if (s->ends[i] < 0 || !ready(s->ends[i], POLLIN, 0)) continue;
        ssize_t n = recv(s->ends[i], &frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return lost(s, i);
        if (n == (ssize_t)sizeof frame && frame.kind == KIND_FAILURE)
            return take_frame(s, s->ends[i], i, 0);
    }
    return OK;
}

static void star_fail(Comm *comm, const char *why) {
    char text[TEXT];
    snprintf(text, sizeof text, "rank %d: %s", comm->rank, why);
    fail(star_of(comm), text);
}

static void star_close(Comm *comm) {
    Star *s = star_of(comm);
    for (int i = 0; i < (comm->rank ? 1 : comm->n_ranks); i++)
        if (s->ends[i] >= 0) close(s->ends[i]);
    memory_free(s->ends);
    memory_free(s->nodes);
    memory_free(s);
}

static const CommApi star = {
    .name = "tcp",
    .processes = true,
    .close = star_close,
    .barrier = star_barrier,
    .gather = star_gather,
    .exchange = star_exchange,
    .node = star_node,
    .check = star_check,
    .fail = star_fail,
};

/* Meeting -------------------------------------------------------------------------------------- */

static Hello hello_of(const StarPlace *place, int rank) {
    return (Hello){ MAGIC, VERSION, (uint32_t)place->n_ranks, (uint32_t)rank,
                    hash_bytes(place->job, strlen(place->job)).low };
}

static bool is_ours(const Hello *a, const Hello *b) {
    return a->magic == b->magic && a->version == b->version && a->n_ranks == b->n_ranks && a->job == b->job;
}

static void no_delay(int end) {
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
}

static int listen_on(int port) {
    int end = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), family = end < 0 ? AF_INET : AF_INET6;
    if (end < 0) end = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end < 0) return -1;
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    bool is_six = family == AF_INET6;
    if (is_six) setsockopt(end, IPPROTO_IPV6, IPV6_V6ONLY, &(int){ 0 }, sizeof(int));
    setsockopt(end, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(end, is_six ? (void *)&six : (void *)&four, is_six ? sizeof six : sizeof four) == 0 &&
        listen(end, 1024) == 0)
        return end;
    close(end);
    return -1;
}

static Status missing(const Star *s, const StarPlace *place, int port) {
    Text who = { 0 };
    for (int i = 1; i < place->n_ranks; i++)
        if (s->ends[i] < 0) text_printf(&who, "%s%d", who.bytes ? ", " : "", i);
    Status status = status_fail(ERR_RANK, "rank 0 has waited %.0f s at %s, port %d, for ranks %s of %d\n"
                                "  hint: they connect to MASTER_ADDR=%s", place->deadline, place->address, port,
                                text_cstr(&who), place->n_ranks, place->address);
    text_finish(&who);
    return status;
}

// Others may knock at the port too.
static Status accept_all(Star *s, const StarPlace *place, int listener, int port) {
    double until = time_seconds() + place->deadline;
    for (int come = 1; come < place->n_ranks;) {
        double left = until - time_seconds();
        if (left <= 0 || !ready(listener, POLLIN, left)) return missing(s, place, port);
        int end = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (end < 0) continue;
        Hello theirs, ours = hello_of(place, 0);
        bool known = take(end, &theirs, sizeof theirs, 5) && is_ours(&theirs, &ours) && theirs.rank > 0 &&
                     theirs.rank < ours.n_ranks;
        if (known && s->ends[theirs.rank] >= 0) {
            close(end);
            return status_fail(ERR_ARGUMENT, "two processes say that they are rank %u of %d\n"
                               "  hint: RANK differs on all", theirs.rank, place->n_ranks);
        }
        if (!known || !give(end, &ours, sizeof ours, 5)) {
            close(end);
            continue;
        }
        no_delay(end);
        s->ends[theirs.rank] = end;
        come++;
    }
    return OK;
}

static Status be_first(Star *s, const StarPlace *place) {
    int port = place->port, listener = -1;
    while (listener < 0 && port < place->port + PORTS) listener = listen_on(port++);
    if (listener < 0)
        return status_fail(ERR_IO, "rank 0 cannot listen on ports %d to %d: %s\n"
                           "  hint: choose another MASTER_PORT", place->port, port - 1, strerror(errno));
    Status status = accept_all(s, place, listener, port - 1);
    close(listener);
    return status;
}

static int connect_to(const char *address, int port) {
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo want = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    if (getaddrinfo(address, service, &want, &found) != 0) return -1;
    int end = -1;
    for (struct addrinfo *at = found; at && end < 0; at = at->ai_next) {
        end = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (end < 0 || connect(end, at->ai_addr, at->ai_addrlen) == 0) continue;
        close(end);
        end = -1;
    }
    freeaddrinfo(found);
    return end;
}

static Status find_first(Star *s, const StarPlace *place) {
    double until = time_seconds() + place->deadline;
    do {
        for (int port = place->port; port < place->port + PORTS; port++) {
            Hello ours = hello_of(place, place->rank), theirs;
            int end = connect_to(place->address, port);
            if (end < 0) continue;
            if (give(end, &ours, sizeof ours, 5) && take(end, &theirs, sizeof theirs, 5) &&
                is_ours(&ours, &theirs)) {
                no_delay(end);
                s->ends[0] = end;
                return OK;
            }
            close(end);
        }
        usleep(50000);
    } while (time_seconds() < until);
    return status_fail(ERR_RANK, "rank %d has found rank 0 at none of the ports %d to %d of %s in %.0f s\n"
                       "  hint: all ranks have the same MASTER_ADDR and MASTER_PORT, and the same version of "
                       "this program", place->rank, place->port, place->port + PORTS - 1, place->address,
                       place->deadline);
}

// torchrun numbers the ranks of a node in a row.
static Status learn_nodes(Star *s, const StarPlace *place) {
    int n = place->n_ranks;
    s->nodes = memory_alloc((size_t)n * sizeof *s->nodes);
    TRY(share(s, &place->local_rank, (char *)s->nodes, sizeof place->local_rank));
    for (int i = 0; i < n; i++) s->nodes[i] = i - s->nodes[i];
    return OK;
}

Status star_open(const StarPlace *place, Comm **out) {
    Star *s = memory_alloc(sizeof *s);
    *out = NULL;
    s->base = (Comm){ .api = &star, .rank = place->rank, .n_ranks = place->n_ranks };
    for (int axis = 0; axis < N_AXES; axis++) s->base.mesh.size[axis] = 1;
    s->deadline = place->deadline;
    int n = place->rank ? 1 : place->n_ranks;
    s->ends = memory_alloc((size_t)n * sizeof *s->ends);
    for (int i = 0; i < n; i++) s->ends[i] = -1;
    Status status = place->rank ? find_first(s, place) : be_first(s, place);
    if (status == OK) status = learn_nodes(s, place);
    if (status == OK) *out = &s->base;
    else star_close(&s->base);
    return status;
}
