// SPDX-License-Identifier: Apache-2.0
// The order of kernels inside each segment, and with it the life of every buffer.
//
// List scheduling: of the kernels whose operands exist, one that leaves no more memory in use than
// before; else the one whose result is wanted first, else the first. Times are positions in the
// finished list.
#include "compiler/lower/pass.h"

typedef struct Scheduler {
    Lower *l;
    uint32_t *waits;                  // by kernel: operands that do not exist yet
    uint32_t *left;                   // by buffer: reads to come
    uint32_t *readers, *reader_first; // kernels that read each buffer, one entry a read
    uint32_t *followers, *follower_first; // kernels that run after each, one entry a mention
    uint32_t *ready, n_ready, cap_ready;
    Meetings meetings;
    int64_t *grows; bool *known;      // by kernel: growth, where nothing has changed it since
    uint8_t *reaches; uint32_t n_reaches; // by kernel: has it operands in sym? Others wait for no meeting
} Scheduler;

static void find_reaches(Scheduler *s) {
    const Lower *l = s->l;
    s->n_reaches = l->n_kernels;
    s->reaches = ARENA_ARRAY(s->l->arena, uint8_t, l->n_kernels);
    for (uint32_t k = 0; k < l->n_kernels; k++)
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++)
            s->reaches[k] |= l->buffers[l->kernels[k].binds[i].buffer].region == REGION_sym;
}

static bool is_due(const Scheduler *s, uint32_t kernel) {
    if (kernel < s->n_reaches && !s->reaches[kernel]) return false;
    return meet_is_due(s->l, &s->meetings, kernel);
}

// Phases of a segment run one after another. First what other stages add to gradients, then the
// optimizer; states are written when nobody reads their old value any more; masters are gathered and packed
// copies made when all are new; then stages that read another's parameter get it, and pack it.
static int phase_of_update(const Lower *l, const Kernel *k) {
    enum { GRADIENTS = INT16_MIN, STATES = 1, PACKS, WEIGHTS, PACKS_OF_COPIES };
    if (!k->n_units && k->op != PLAN_launch) return PACKS; // gathered masters
    if (!k->n_units && k->desc.family == FAMILY_PACK)
        return k->node && l->m->nodes[k->node].op == OP_STATE &&
                       !lower_owns(l, l->m->nodes[k->node].attr.index)
                   ? PACKS_OF_COPIES
                   : PACKS;
    if (!k->n_units) return 0;
    const Node *node = model_at(l->m, l->units[k->units[0]].node);
    if (node->op == OP_ACCUMULATE) return GRADIENTS;
    if (node->op == OP_UPDATE) return STATES;
    if (node->op != OP_SEND && node->op != OP_RECV) return 0;
    return node->attr.cross.when == CROSS_GRADIENT ? GRADIENTS
           : node->attr.cross.when == CROSS_WEIGHT ? WEIGHTS
                                                   : 0;
}

static int phase_of(const Lower *l, uint32_t kernel) {
    const Kernel *k = &l->kernels[kernel];
    if (k->depth < 0) return k->depth;
    return k->segment == SEGMENT_UPDATE ? phase_of_update(l, k) : 0;
}

static void list_readers(Scheduler *s) {
    Lower *l = s->l;
    s->left = ARENA_ARRAY(l->arena, uint32_t, l->n_buffers);
    s->reader_first = ARENA_ARRAY(l->arena, uint32_t, l->n_buffers + 1);
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        s->left[b] = l->buffers[b].n_readers;
        s->reader_first[b + 1] = s->reader_first[b] + l->buffers[b].n_readers;
    }
    s->readers = ARENA_ARRAY(l->arena, uint32_t, s->reader_first[l->n_buffers] + 1);
    uint32_t *at = ARENA_ARRAY(l->arena, uint32_t, l->n_buffers);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++) {
            const Bind *bind = &l->kernels[k].binds[i];
            if (bind->mode != OPERAND_READ) continue;
            s->readers[s->reader_first[bind->buffer] + at[bind->buffer]++] = k;
        }
    }
}

static void list_followers(Scheduler *s) {
    Lower *l = s->l;
    s->follower_first = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels + 1);
    for (uint32_t k = 0; k < l->n_kernels; k++)
        for (uint32_t i = 0; i < l->kernels[k].n_after; i++)
            s->follower_first[l->kernels[k].after[i] + 1]++;
    for (uint32_t k = 0; k < l->n_kernels; k++) s->follower_first[k + 1] += s->follower_first[k];
    s->followers = ARENA_ARRAY(l->arena, uint32_t, s->follower_first[l->n_kernels] + 1);
    uint32_t *at = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        for (uint32_t i = 0; i < l->kernels[k].n_after; i++) {
            uint32_t earlier = l->kernels[k].after[i];
            s->followers[s->follower_first[earlier] + at[earlier]++] = k;
        }
    }
}

static bool waits_for(const Lower *l, uint32_t kernel, const Bind *bind) {
    const Buffer *buffer = &l->buffers[bind->buffer];
    if (bind->mode != OPERAND_READ || !buffer_is_made(buffer) || !buffer->writer) return false;
    return l->kernels[buffer->writer - 1].segment == l->kernels[kernel].segment;
}

// Kernels of a segment in any topological order; returns how many there are.
static uint32_t topological(Scheduler *s, SegmentKind segment, uint32_t *out) {
    Lower *l = s->l;
    uint32_t n = 0;
    uint32_t *waits = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        if (l->kernels[k].segment != segment) continue;
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++)
            waits[k] += waits_for(l, k, &l->kernels[k].binds[i]);
        waits[k] += l->kernels[k].n_after;
        if (!waits[k]) out[n++] = k;
    }
    for (uint32_t done = 0; done < n; done++) {
        const Kernel *kernel = &l->kernels[out[done]];
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            uint32_t b = kernel->binds[i].buffer;
            if (kernel->binds[i].mode != OPERAND_WRITE || !buffer_is_made(&l->buffers[b])) continue;
            for (uint32_t r = s->reader_first[b]; r < s->reader_first[b + 1]; r++) {
                uint32_t reader = s->readers[r];
                if (l->kernels[reader].segment == segment && --waits[reader] == 0)
                    out[n++] = reader;
            }
        }
        for (uint32_t i = s->follower_first[out[done]]; i < s->follower_first[out[done] + 1]; i++)
            if (--waits[s->followers[i]] == 0) out[n++] = s->followers[i];
    }
    return n;
}

static void fill_late(Scheduler *s, const uint32_t *order, uint32_t n) {
    Lower *l = s->l;
    for (uint32_t at = n; at-- > 0;) {
        Kernel *kernel = &l->kernels[order[at]];
        int32_t need = INT32_MAX;
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            uint32_t b = kernel->binds[i].buffer;
            if (kernel->binds[i].mode != OPERAND_WRITE || !buffer_is_made(&l->buffers[b])) continue;
            for (uint32_t r = s->reader_first[b]; r < s->reader_first[b + 1]; r++) {
                const Kernel *reader = &l->kernels[s->readers[r]];
                if (reader->segment == kernel->segment && reader->late - 1 < need)
                    need = reader->late - 1;
            }
        }
        for (uint32_t i = s->follower_first[order[at]]; i < s->follower_first[order[at] + 1]; i++) {
            const Kernel *follower = &l->kernels[s->followers[i]];
            if (follower->late - 1 < need) need = follower->late - 1;
        }
        kernel->late = need == INT32_MAX || need < kernel->depth ? kernel->depth : need;
    }
}

// Kernels of a repeat run together, when what all of them need is there.
static uint32_t leader_of(const Lower *l, uint32_t kernel) {
    uint32_t repeat = l->kernels[kernel].repeat;
    return repeat ? l->repeats[repeat - 1].kernels[0] : kernel;
}

static void count_waits(Scheduler *s, SegmentKind segment) {
    Lower *l = s->l;
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        if (l->kernels[k].segment != segment) continue;
        uint32_t leader = leader_of(l, k);
        for (uint32_t i = 0; i < l->kernels[k].n_binds; i++) {
            const Bind *bind = &l->kernels[k].binds[i];
            if (!waits_for(l, k, bind)) continue;
            s->waits[leader] += leader_of(l, l->buffers[bind->buffer].writer - 1) != leader;
        }
        for (uint32_t i = 0; i < l->kernels[k].n_after; i++)
            s->waits[leader] += leader_of(l, l->kernels[k].after[i]) != leader;
    }
}

// Bytes in use after the kernel less those before it.
static int64_t growth(const Scheduler *s, uint32_t kernel) {
    const Lower *l = s->l;
    const Kernel *k = &l->kernels[kernel];
    int64_t bytes = 0;
    for (uint32_t i = 0; i < k->n_binds; i++) {
        const Buffer *buffer = &l->buffers[k->binds[i].buffer];
        if (!buffer_is_placed(buffer)) continue;
        if (k->binds[i].mode == OPERAND_WRITE && buffer->n_readers) bytes += buffer->bytes;
        if (k->binds[i].mode == OPERAND_READ && s->left[k->binds[i].buffer] == 1)
            bytes -= buffer->bytes;
    }
    return bytes;
}

// What decides among kernels that could run next.
typedef struct Rank {
    uint32_t kernel;
    bool due;
    int phase;
    int32_t late;
    int64_t grows;
} Rank;

static Rank rank_of(const Scheduler *s, uint32_t kernel) {
    if (!s->known[kernel]) {
        s->grows[kernel] = growth(s, kernel);
        s->known[kernel] = true;
    }
    return (Rank){ kernel, is_due(s, kernel), phase_of(s->l, kernel), s->l->kernels[kernel].late, s->grows[kernel] };
}

static bool is_before(const Rank *a, const Rank *b) {
    if (a->due != b->due) {
        // What waits for no meeting fills the time until it, unless its result is wanted later and would
        // only lie there: blocks that backward computes again.
        const Rank *free = a->due ? b : a, *due = a->due ? a : b;
        bool early = free->late > due->late && free->grows > 0;
        return early ? a->due : b->due;
    }
    if (a->phase != b->phase) return a->phase < b->phase;
    if ((a->grows <= 0) != (b->grows <= 0)) return a->grows <= 0;
    if (a->grows <= 0 && a->grows != b->grows) return a->grows < b->grows;
    if (a->late != b->late) return a->late < b->late;
    return a->kernel < b->kernel;
}

// One of what `waiting` waits for has run.
static void release(Scheduler *s, uint32_t waiting, uint32_t done) {
    Lower *l = s->l;
    uint32_t leader = leader_of(l, waiting);
    if (l->kernels[leader].segment != l->kernels[done].segment || leader == leader_of(l, done) ||
        --s->waits[leader] > 0)
        return;
    *ARENA_PUSH(l->arena, s->ready, s->n_ready, s->cap_ready) = leader;
}

static void run(Scheduler *s, uint32_t kernel, int32_t time) {
    Lower *l = s->l;
    Kernel *k = &l->kernels[kernel];
    l->order[time] = kernel;
    k->time = time;
    meet_run(l, &s->meetings, kernel);
    for (uint32_t i = 0; i < k->n_binds; i++) {
        uint32_t b = k->binds[i].buffer;
        bool last = k->binds[i].mode == OPERAND_READ && --s->left[b] == 1;
        for (uint32_t r = s->reader_first[b]; last && r < s->reader_first[b + 1]; r++) s->known[s->readers[r]] = false;
        if (k->binds[i].mode != OPERAND_WRITE || !buffer_is_made(&l->buffers[b])) continue;
        for (uint32_t r = s->reader_first[b]; r < s->reader_first[b + 1]; r++)
            release(s, s->readers[r], kernel);
    }
    for (uint32_t i = s->follower_first[kernel]; i < s->follower_first[kernel + 1]; i++)
        release(s, s->followers[i], kernel);
}

// Ranks meet now: an instruction that nothing in the graph asks for.
static uint32_t meet(Scheduler *s, SegmentKind segment, int32_t time) {
    Lower *l = s->l;
    uint32_t barrier = lower_add_crossing(l, segment, 0, PLAN_barrier, lower_reach(l));
    l->kernels[barrier].time = time;
    l->order[time] = barrier;
    meet_run(l, &s->meetings, barrier);
    return barrier;
}

// Has all that the kernel needs of its repeat run?
static bool is_next(const Scheduler *s, uint32_t kernel, const bool *done) {
    const Lower *l = s->l;
    const Kernel *k = &l->kernels[kernel];
    for (uint32_t i = 0; i < k->n_binds; i++) {
        uint32_t writer = l->buffers[k->binds[i].buffer].writer;
        bool inside = waits_for(l, kernel, &k->binds[i]) && l->kernels[writer - 1].repeat == k->repeat;
        if (inside && !done[writer - 1]) return false;
    }
    for (uint32_t i = 0; i < k->n_after; i++)
        if (l->kernels[k->after[i]].repeat == k->repeat && !done[k->after[i]]) return false;
    return true;
}

static bool touches_own(const Lower *l, uint32_t kernel) {
    const Kernel *k = &l->kernels[kernel];
    for (uint32_t i = 0; i < k->n_binds; i++)
        if (!k->binds[i].remote && l->buffers[k->binds[i].buffer].region == REGION_sym) return true;
    return false;
}

// The kernels of a counted repeat, and where ranks meet in it: as late as can be, so that once serves all;
// and before the next trip's puts overwrite what this one has read.
static void run_counted(Scheduler *s, SegmentKind segment, uint32_t index, int32_t *time) {
    Lower *l = s->l;
    Meetings before = { .met = s->meetings.met, .open = s->meetings.open };
    before.unmet = arena_alloc(l->arena, l->n_buffers);
    memcpy(before.unmet, s->meetings.unmet, l->n_buffers);
    uint32_t n = l->repeats[index - 1].n, *kernels = ARENA_ARRAY(l->arena, uint32_t, n), *order = NULL, at = 0, cap = 0;
    memcpy(kernels, l->repeats[index - 1].kernels, sizeof *kernels * n);
    bool *done = ARENA_ARRAY(l->arena, bool, l->n_kernels), open = false;
    for (uint32_t left = n; left > 0; left--) {
        uint32_t best = NO_KERNEL;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t k = kernels[i];
            if (done[k] || !is_next(s, k, done)) continue;
            bool due = is_due(s, k), due_best = best != NO_KERNEL && is_due(s, best);
            bool sooner = best != NO_KERNEL && l->kernels[k].late < l->kernels[best].late;
            if (best == NO_KERNEL || (due != due_best ? due_best : sooner)) best = k;
        }
        if (is_due(s, best)) {
            *ARENA_PUSH(l->arena, order, at, cap) = meet(s, segment, (*time)++);
            open = false;
        }
        open |= touches_own(l, best);
        run(s, best, (*time)++);
        done[best] = true;
        *ARENA_PUSH(l->arena, order, at, cap) = best;
    }
    if (open) *ARENA_PUSH(l->arena, order, at, cap) = meet(s, segment, (*time)++);
    for (uint32_t i = 0; i < at; i++) l->kernels[order[i]].repeat = index;
    l->repeats[index - 1].kernels = order;
    l->repeats[index - 1].n = l->repeats[index - 1].cap = at;
    meet_join(l, &s->meetings, &before);
}

static void schedule_segment(Scheduler *s, SegmentKind segment, int32_t *time) {
    Lower *l = s->l;
    count_waits(s, segment);
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        if (l->kernels[k].segment != segment || s->waits[k] || leader_of(l, k) != k) continue;
        *ARENA_PUSH(l->arena, s->ready, s->n_ready, s->cap_ready) = k;
    }
    while (s->n_ready) {
        uint32_t best = 0;
        Rank first = rank_of(s, s->ready[0]);
        for (uint32_t i = 1; i < s->n_ready; i++) {
            Rank other = rank_of(s, s->ready[i]);
            if (!is_before(&other, &first)) continue;
            best = i;
            first = other;
        }
        uint32_t kernel = s->ready[best];
        s->ready[best] = s->ready[--s->n_ready];
        uint32_t repeat = l->kernels[kernel].repeat;
        if (repeat && l->repeats[repeat - 1].count) {
            run_counted(s, segment, repeat, time);
            continue;
        }
        if (is_due(s, kernel)) meet(s, segment, (*time)++);
        run(s, kernel, (*time)++);
        for (uint32_t i = 1; repeat && i < l->repeats[repeat - 1].n; i++)
            run(s, l->repeats[repeat - 1].kernels[i], (*time)++);
    }
}

// The next trip wants all that this one has used.
static void live_through(Lower *l, const Repeat *repeat) {
    if (!repeat->n) return;
    int32_t first = l->kernels[repeat->kernels[0]].time, last = first + (int32_t)repeat->n - 1;
    if (repeat->count && l->buffers[repeat->count - 1].last < first) l->buffers[repeat->count - 1].last = first;
    for (uint32_t i = 0; i < repeat->n; i++) {
        const Kernel *kernel = &l->kernels[repeat->kernels[i]];
        for (uint32_t k = 0; k < kernel->n_binds; k++) {
            Buffer *buffer = &l->buffers[kernel->binds[k].buffer];
            if (!buffer_is_placed(buffer)) continue;
            if (first < buffer->first) buffer->first = first;
            if (last > buffer->last) buffer->last = last;
        }
    }
}

void schedule_lives(Lower *l) {
    int32_t last = (int32_t)l->n_kernels - 1;
    for (uint32_t b = 0; b < l->n_buffers; b++) {
        Buffer *buffer = &l->buffers[b];
        bool act = buffer_is_placed(buffer);
        buffer->first = act ? l->kernels[buffer->writer - 1].time : 0;
        buffer->last = act ? buffer->first : last;
    }
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        for (uint32_t i = 0; i < kernel->n_binds; i++) {
            Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            if (buffer_is_placed(buffer) && kernel->time > buffer->last) buffer->last = kernel->time;
        }
    }
    for (uint32_t i = 0; i < l->n_repeats; i++) live_through(l, &l->repeats[i]);
    meet_lives(l);
}

// Of what lives for a part of the program.
static bool check_made(Lower *l) {
    for (uint32_t b = 0; b < l->n_buffers; b++)
        if (buffer_is_placed(&l->buffers[b]) && !l->buffers[b].writer)
            return lower_fail(l, l->buffers[b].node, "internal error: a value that nobody makes");
    for (uint32_t k = 0; k < l->n_kernels; k++) {
        const Kernel *kernel = &l->kernels[k];
        for (uint32_t i = 0; kernel->segment == SEGMENT_UPDATE && i < kernel->n_binds; i++) {
            const Buffer *buffer = &l->buffers[kernel->binds[i].buffer];
            if (buffer_is_placed(buffer) && l->kernels[buffer->writer - 1].segment != SEGMENT_UPDATE)
                return lower_fail(l, buffer->node,
                                  "internal error: a value of a microbatch is read by the update");
        }
    }
    return true;
}

bool pass_schedule(Lower *l) {
    Scheduler s = { .l = l, .waits = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels) };
    s.grows = ARENA_ARRAY(l->arena, int64_t, l->n_kernels);
    s.known = ARENA_ARRAY(l->arena, bool, l->n_kernels);
    uint32_t *order = ARENA_ARRAY(l->arena, uint32_t, l->n_kernels);
    // Of each kernel one meeting may precede, and one may end the program, or a repeat.
    l->order = ARENA_ARRAY(l->arena, uint32_t, 2 * l->n_kernels + l->n_repeats + 1);
    meet_start(l, &s.meetings);
    find_reaches(&s);
    lower_list_rows(l);
    list_readers(&s);
    list_followers(&s);
    int32_t time = 0;
    for (int segment = 0; segment < N_SEGMENTS; segment++) {
        l->segment_first[segment] = time;
        if (!lower_has_segment(l, segment)) continue;
        fill_late(&s, order, topological(&s, (SegmentKind)segment, order));
        meet_segment(&s.meetings);
        schedule_segment(&s, (SegmentKind)segment, &time);
        // After a program nobody reaches into another's memory.
        bool last = segment == (l->program == PROGRAM_STEP ? SEGMENT_UPDATE
                                                           : SEGMENT_FORWARD + l->chunks - 1);
        if (last && s.meetings.open) meet(&s, (SegmentKind)segment, time++);
    }
    l->segment_first[N_SEGMENTS] = time;
    if ((uint32_t)time != l->n_kernels)
        return lower_fail(l, 0, "internal error: kernels wait for each other");
    if (!check_made(l)) return false;
    schedule_lives(l);
    overlap_crossings(l);
    return true;
}

void dump_schedule(const Lower *l, Text *out) {
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        const Kernel *kernel = &l->kernels[l->order[t]];
        text_printf(out, "%u %s %s", t, lower_segment_name(l, kernel->segment), kernel_word(kernel));
        if (kernel->node) text_printf(out, " %s", op_info[l->m->nodes[kernel->node].op].name);
        text_add(out, "\n");
    }
}
