// SPDX-License-Identifier: Apache-2.0
// Row programs and whole-array kernels against the bandwidth of copies. Bytes: every array once,
// read or written; twice where it is changed in place.
//
// A program's group is everything its roots need up to what it cannot compute itself, as lowering
// would cut it if the program were a kernel of its own.
#include <stdlib.h>

#include "tests/bench/bench.h"
#include "tests/kernels/rows_graph.h"

enum {
    TOKENS = 8192, SEQUENCE = 1024, WIDTH = 512, HEADS = 8, EXPERTS = 32, TOP_K = 4, VOCAB = 16384,
    ROWS = TOKENS * TOP_K, LOSS_TOKENS = 1024, MAX_LOADS = 12, MAX_STORES = 4, MAX_CASES = 40,
    NARROW_FROM = 64, // features: what is at least so wide is bf16 in a bf16 run
    NUMBERS = 1 << 25 // of the optimiser's kernels
};

typedef struct Case {
    const char *name;
    Model *m; // NULL: desc is complete
    int precision;
    int64_t tokens;
    Limit limit;
    double bytes;
    KernelDesc desc;
    RowLoad loads[MAX_LOADS];
    RowStore stores[MAX_STORES];
    uint8_t *state; // by node: 1 computed, 2 loaded
    bool wanted;
    uint32_t kernel;
    Bound bound[MAX_LOADS + MAX_STORES];
    char names[MAX_LOADS + MAX_STORES][8];
    int n_bound;
} Case;

typedef struct Section {
    Case cases[MAX_CASES];
    int n;
    Kit kit;
    int32_t offsets[EXPERTS + 1], *slot_of_row, *row_of_slot, *positions, *labels;
} Section;

/* Groups ------------------------------------------------------------------------------------------ */

static uint32_t view_base(const Model *m, uint32_t node) {
    while (op_info[m->nodes[node].op].class == CLASS_VIEW) node = model_arg(m, node, 0);
    return node;
}

static void add_load(Case *c, uint32_t node, int what, Dtype dtype) {
    RowBody *b = &c->desc.body;
    for (uint32_t i = 0; i < b->n_loads; i++)
        if (c->loads[i].node == node && c->loads[i].what == what) return;
    if (b->n_loads == MAX_LOADS) give_up("%s reads too many arrays", c->name);
    c->loads[b->n_loads++] = (RowLoad){node, (uint8_t)what, (uint8_t)dtype, 0};
}

static Dtype type_in_memory(const Case *c, uint32_t node) {
    const Type *t = model_type(c->m, node);
    if (t->kind != KIND_REAL || c->m->nodes[node].op == OP_VALID) return DTYPE_I32;
    bool rows = t->row == ROW_T || t->row == ROW_R;
    return rows && type_features(t) >= NARROW_FROM ? precision_dtype(c->precision) : DTYPE_F32;
}

static bool is_memory(const Case *c, uint32_t node, bool far) {
    const Node *n = model_at(c->m, node);
    OpClass class = op_info[n->op].class;
    return (far && class != CLASS_VIEW) || class == CLASS_CONTRACT || n->op == OP_PARAM ||
           (class == CLASS_GENERATOR && n->op != OP_INV_STEP);
}

static void visit(Case *c, uint32_t node, bool far) {
    const Model *m = c->m;
    const Node *n = model_at(m, node);
    if (c->state[node] || n->type.kind == KIND_ROUTE || n->op == OP_CONST || n->op == OP_CONSTANT)
        return;
    c->state[node] = is_memory(c, node, far) ? 2 : 1;
    if (c->state[node] == 2)
        add_load(c, node, WHAT_VALUE, type_in_memory(c, node));
    else if (n->op == OP_INV_STEP)
        add_load(c, node, WHAT_SCALARS, DTYPE_F32);
    else if (n->op == OP_DISPATCH)
        add_load(c, model_arg(m, node, 1), WHAT_SLOT_OF_ROW, DTYPE_I32);
    else if (n->op == OP_COLLECT)
        add_load(c, model_arg(m, node, 1), WHAT_ROW_OF_SLOT, DTYPE_I32);
    bool index = op_info[n->op].class == CLASS_INDEX;
    for (int i = 0; c->state[node] == 1 && i < n->n_args; i++)
        visit(c, model_arg(m, node, i),
              (index && i == 0) || (far && op_info[n->op].class == CLASS_VIEW));
}

static int64_t numbers(const Case *c, const Type *t) {
    int64_t rows = t->row == ROW_T ? c->tokens : t->row == ROW_R ? c->tokens * TOP_K : 1;
    return rows * type_features(t);
}

static void bind(Case *c, char letter, uint32_t number, int64_t count, Dtype dtype,
                 const int32_t *from) {
    char *name = c->names[c->n_bound];
    snprintf(name, sizeof c->names[0], "%c%u", letter, number);
    c->bound[c->n_bound++] = (Bound){name, count, from};
    c->bytes += (double)count * dtype_bytes(dtype);
}

static void bind_load(const Section *s, Case *c, uint32_t number) {
    const RowLoad *l = &c->loads[number];
    const Node *n = model_at(c->m, l->node);
    switch (l->what) {
    case WHAT_SCALARS: bind(c, 'l', number, N_SCALARS, DTYPE_F32, NULL); return;
    case WHAT_OFFSETS: bind(c, 'l', number, EXPERTS + 1, DTYPE_I32, s->offsets); return;
    case WHAT_SLOT_OF_ROW: bind(c, 'l', number, ROWS, DTYPE_I32, s->slot_of_row); return;
    case WHAT_ROW_OF_SLOT: bind(c, 'l', number, ROWS, DTYPE_I32, s->row_of_slot); return;
    default: break;
    }
    const int32_t *from = l->dtype != DTYPE_I32 ? NULL : n->op == OP_POSITIONS ? s->positions : s->labels;
    bind(c, 'l', number, numbers(c, &n->type), (Dtype)l->dtype, from);
}

// The model is the case's from here on.
static void add_rows(Section *s, const char *name, Model *m, int precision, int64_t tokens,
                     const uint32_t *roots, int n_roots) {
    Case *c = &s->cases[s->n++];
    *c = (Case){.name = name, .m = m, .precision = precision, .tokens = tokens, .limit = LIMIT_COPY};
    c->state = ARENA_ARRAY(m->arena, uint8_t, m->n_nodes);
    uint32_t *nodes = ARENA_ARRAY(m->arena, uint32_t, m->n_nodes);
    RowBody *b = &c->desc.body;
    if (!roots[0]) give_up("%s: %s", name, m->diag.message);
    const Type *type = model_type(m, roots[0]);
    *b = (RowBody){.model = m, .row = type->row, .route = type->route, .nodes = nodes,
                   .loads = c->loads, .stores = c->stores};
    c->desc.family = FAMILY_ROW;
    c->desc.rows = type->row == ROW_R ? tokens * TOP_K : tokens;
    c->desc.sequence = type->row == ROW_T ? SEQUENCE : 0;
    if (type->row == ROW_R) {
        c->desc.experts = EXPERTS;
        add_load(c, type->route, WHAT_OFFSETS, DTYPE_I32);
    }
    for (int i = 0; i < n_roots; i++) {
        if (!roots[i]) give_up("%s: %s", name, m->diag.message);
        bool partial = op_info[m->nodes[roots[i]].op].class == CLASS_PARTIAL;
        visit(c, partial ? model_arg(m, roots[i], 0) : roots[i], false);
        c->stores[b->n_stores++] = (RowStore){
            .node = roots[i], .dtype = (uint8_t)type_in_memory(c, roots[i]), .partial = partial};
    }
    for (uint32_t id = 1; id < m->n_nodes; id++)
        if (c->state[id] == 1) nodes[b->n_nodes++] = id;
    for (uint32_t i = 0; i < b->n_loads; i++) bind_load(s, c, i);
    for (uint32_t i = 0; i < b->n_stores; i++) {
        const Type *t = model_type(m, c->stores[i].node);
        int64_t count = c->stores[i].partial ? div_up(tokens, ROW_TILE) * type_features(t) : numbers(c, t);
        bind(c, 's', i, count, (Dtype)c->stores[i].dtype, NULL);
    }
}

/* Programs ---------------------------------------------------------------------------------------- */

static uint32_t rms_norm(Model *m, uint32_t x, uint32_t gain) {
    int32_t n = model_type(m, x)->dim[0];
    uint32_t mean = g_mul(m, model_sum(m, g_mul(m, x, x), 1), g_number(m, 1.0 / n));
    uint32_t scale = model_op1(m, OP_RSQRT, g_add(m, mean, g_number(m, 1e-6)));
    return g_mul(m, g_mul(m, x, scale), gain);
}

static uint32_t swiglu(Model *m, uint32_t gate, uint32_t up) {
    return g_mul(m, g_mul(m, gate, model_op1(m, OP_SIGMOID, gate)), up);
}

static uint32_t softmax(Model *m, uint32_t x) {
    Attr attr = {.raw = {0, 0}};
    attr.axes = 1;
    uint32_t e = model_op1(m, OP_EXP, g_sub(m, x, g_attr(m, OP_AMAX, attr, x, 0, 0)));
    return g_div(m, e, model_sum(m, e, 1));
}

// Gradients by the system's own differentiation. Values of tokens are products with a weight
// (rows_graph.h), so the gradient of one is the second operand of its weight's gradient.
static void gradients(Model *m, uint32_t root, const uint32_t *of, int n, uint32_t *out) {
    uint32_t seed = g_tokens(m, DIMS(model_type(m, root)->dim[0]));
    uint32_t *all = ARENA_ARRAY(m->arena, uint32_t, m->n_params);
    if (!model_gradients(m, &root, &seed, 1, all)) give_up("%s", m->diag.message);
    for (int i = 0; i < n; i++) {
        bool tokens = m->nodes[of[i]].op == OP_MATMUL;
        uint32_t w = tokens ? model_arg(m, of[i], 1) : of[i];
        uint32_t g = all[m->nodes[w].attr.index];
        out[i] = tokens ? model_arg(m, g, 1) : view_base(m, g);
    }
}

static void add_norms(Section *s, int p) {
    Model *m = model_create();
    uint32_t roots[3], x = g_tokens(m, DIMS(WIDTH)), gain = g_param(m, DIMS(WIDTH));
    roots[0] = rms_norm(m, x, gain);
    add_rows(s, "rms_norm", m, p, TOKENS, roots, 1);

    m = model_create();
    roots[0] = g_add(m, g_tokens(m, DIMS(WIDTH)), g_tokens(m, DIMS(WIDTH)));
    roots[1] = rms_norm(m, roots[0], g_param(m, DIMS(WIDTH)));
    add_rows(s, "residual + rms_norm", m, p, TOKENS, roots, 2);

    m = model_create();
    x = g_tokens(m, DIMS(WIDTH)), gain = g_param(m, DIMS(WIDTH));
    gradients(m, rms_norm(m, x, gain), (uint32_t[]){x, gain}, 2, roots);
    add_rows(s, "rms_norm backward", m, p, TOKENS, roots, 2);
}

static void add_attention(Section *s, int p) {
    double frequencies[WIDTH / HEADS / 2];
    for (int i = 0; i < COUNT_OF(frequencies); i++) frequencies[i] = 1.0 / (i + 1);
    Attr attr = {.raw = {0, 0}};
    attr.turn.factor = 1, attr.turn.sign = 1, attr.turn.pairs = PAIRS_HALF;
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(HEADS, WIDTH / HEADS));
    uint32_t f = model_constant(m, frequencies, COUNT_OF(frequencies));
    uint32_t root = g_attr(m, OP_ROTATE, attr, x, f, model_generator(m, OP_POSITIONS, 0, NULL, 0));
    add_rows(s, "rope", m, p, TOKENS, &root, 1);
}

static void add_activation(Section *s, int p) {
    Model *m = model_create();
    uint32_t roots[2], gate = g_tokens(m, DIMS(WIDTH)), up = g_tokens(m, DIMS(WIDTH));
    roots[0] = swiglu(m, gate, up);
    add_rows(s, "swiglu", m, p, TOKENS, roots, 1);

    m = model_create();
    gate = g_tokens(m, DIMS(WIDTH)), up = g_tokens(m, DIMS(WIDTH));
    gradients(m, swiglu(m, gate, up), (uint32_t[]){gate, up}, 2, roots);
    add_rows(s, "swiglu backward", m, p, TOKENS, roots, 2);
}

static void add_moe(Section *s, int p) {
    Model *m = model_create();
    uint32_t roots[2], score = softmax(m, g_tokens(m, DIMS(EXPERTS)));
    roots[1] = g_k(m, OP_TOP_K, score, 0, TOP_K);
    uint32_t weights = model_op2(m, OP_GATHER, score, roots[1]);
    roots[0] = g_div(m, weights, model_sum(m, weights, 1));
    add_rows(s, "router: softmax, top 4", m, p, TOKENS, roots, 2);

    m = model_create();
    uint32_t route = g_route(m, EXPERTS, TOP_K, false), x = g_tokens(m, DIMS(WIDTH));
    uint32_t copies = g_broadcast(m, g_reshape(m, x, DIMS(1, WIDTH)), DIMS(TOP_K, WIDTH), x);
    roots[0] = model_op2(m, OP_DISPATCH, copies, route);
    add_rows(s, "dispatch", m, p, TOKENS, roots, 1);

    m = model_create();
    route = g_route(m, EXPERTS, TOP_K, false);
    uint32_t y = model_op2(m, OP_COLLECT, g_rows(m, route, DIMS(WIDTH)), route);
    uint32_t w = g_tokens(m, DIMS(TOP_K, 1));
    roots[0] = model_sum(m, g_mul(m, y, w), 1);
    add_rows(s, "combine", m, p, TOKENS, roots, 1);
}

static void add_loss(Section *s, int p) {
    Model *m = model_create();
    uint32_t x = g_tokens(m, DIMS(VOCAB)), labels = model_generator(m, OP_LABELS, 1, NULL, 0);
    uint32_t root = g_mul(m, g_sub(m, softmax(m, x), g_k(m, OP_ONE_HOT, labels, 0, VOCAB)),
                          model_generator(m, OP_INV_STEP, 0, NULL, 0));
    add_rows(s, "loss gradient, 16384 wide", m, p, LOSS_TOKENS, &root, 1);
}

/* Whole arrays ------------------------------------------------------------------------------------ */

static void add_flat(Section *s, const char *name, Limit limit, KernelDesc desc, double bytes,
                     const Bound *bound, int n) {
    Case *c = &s->cases[s->n++];
    *c = (Case){.name = name, .desc = desc, .limit = limit, .bytes = bytes, .n_bound = n};
    c->precision = desc.family == FAMILY_PACK ? desc.precision : PRECISION_FP32;
    memcpy(c->bound, bound, (size_t)n * sizeof *bound);
}

static void add_optimizer(Section *s) {
    static const PlanParam param = {.name = "w", .n_dims = 1, .dims = {NUMBERS}, .decay = 1, .lr = 1};
    const int64_t n = NUMBERS;
    const Bound adamw[] = {{"grads", n, NULL}, {"weights", n, NULL}, {"moment1", n, NULL},
                           {"moment2", n, NULL}, {"scalars", N_SCALARS, NULL}};
    const Bound flat[] = {{"x", n, NULL}, {"partials", div_up(n, SUMSQ_TILE), NULL}};
    add_flat(s, "adamw", LIMIT_UPDATE,
             (KernelDesc){.family = FAMILY_ADAMW, .n = n, .params = &param, .n_params = 1}, 28.0 * NUMBERS,
             adamw, COUNT_OF(adamw));
    add_flat(s, "gradient norm (reads)", LIMIT_COPY, (KernelDesc){.family = FAMILY_SUMSQ, .n = n},
             4.0 * NUMBERS, flat, 2);
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        for (int turned = 0; turned < 2; turned++) {
            KernelDesc d = {.family = FAMILY_PACK, .experts = EXPERTS, .each = 1, .k = 1024, .n = 1024,
                            .turned = turned, .precision = (uint8_t)p};
            const Bound pack[] = {{"w", n, NULL}, {"packed", n, NULL}};
            add_flat(s, turned ? "pack, turned" : "pack", LIMIT_COPY, d,
                     (double)NUMBERS * (4 + dtype_bytes(precision_dtype(p))), pack, 2);
        }
    }
}

/* Running ----------------------------------------------------------------------------------------- */

// Every token to TOP_K experts after one another from a random first; rows in order of experts.
static void make_arrays(Section *s, Arena *arena) {
    s->slot_of_row = ARENA_ARRAY(arena, int32_t, ROWS);
    s->row_of_slot = ARENA_ARRAY(arena, int32_t, ROWS);
    s->positions = ARENA_ARRAY(arena, int32_t, TOKENS);
    s->labels = ARENA_ARRAY(arena, int32_t, TOKENS);
    int32_t row = 0;
    for (int e = 0; e < EXPERTS; e++) {
        s->offsets[e] = row;
        for (int t = 0; t < TOKENS; t++) {
            int choice = (int)((uint64_t)e + EXPERTS - hash_mix(5, 5, (uint64_t)t) % EXPERTS) % EXPERTS;
            if (choice >= TOP_K) continue;
            s->slot_of_row[row] = t * TOP_K + choice;
            s->row_of_slot[t * TOP_K + choice] = row++;
        }
    }
    s->offsets[EXPERTS] = row;
    for (int t = 0; t < TOKENS; t++) {
        s->positions[t] = t % SEQUENCE;
        s->labels[t] = (int32_t)(hash_mix(6, 6, (uint64_t)t) % VOCAB);
    }
}

static void run_case(Bench *bench, const Section *s, const Case *c) {
    Trial trial;
    trial_open(&trial, bench, &s->kit, c->kernel, c->bound, c->n_bound);
    if (c->desc.family == FAMILY_ADAMW) { // as a step has them: nothing vanishes or explodes
        static const float scalars[N_SCALARS] = {
            [SCALAR_lr] = 1e-4f,       [SCALAR_decay] = 0.1f,      [SCALAR_beta1] = 0.9f,
            [SCALAR_beta2] = 0.95f,    [SCALAR_eps] = 1e-8f,       [SCALAR_correction1] = 1,
            [SCALAR_correction2] = 1,  [SCALAR_grad_scale] = 1};
        for (int set = 0; set < trial.n_sets; set++)
            memcpy(trial.args[set][trial_arg(&trial, "scalars")], scalars, sizeof scalars);
    }
    trial_run(&trial);
    trial_check_finite(&trial);
    Timing t = time_runs(bench, c->limit, c->bytes, bench->quick ? 0.15 : 1, 3, trial_run, &trial);
    report_row(&bench->report,
               (Cell[]){TEXT(c->name), TEXT(precision_text(c->precision)), NUMBER(c->bytes / 1e6),
                        NUMBER(t.best * 1e3), NUMBER(c->bytes / t.best / 1e9),
                        TEXT(limit_name[c->limit]), NUMBER(t.best_share), NUMBER(t.median_share)});
    trial_close(&trial);
}

void rows_section(Bench *bench) {
    static const Column columns[] = {
        {"program", "program", -26, 0}, {"memory", "memory", -6, 0},   {"mb", "MB", 8, 1},
        {"ms", "ms", 9, 3},             {"gbs", "GB/s", 7, 1},         {"limit", "limit", -15, 0},
        {"best", "% best", 7, 1},       {"median", "% median", 8, 1},
    };
    Section *s = calloc(1, sizeof *s);
    Arena *arena = arena_create();
    if (!s || !arena) give_up("out of memory");
    make_arrays(s, arena);
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        add_norms(s, p);
        add_attention(s, p);
        add_activation(s, p);
        add_moe(s, p);
        add_loss(s, p);
    }
    add_optimizer(s);
    kit_open(&s->kit);
    for (int i = 0; i < s->n; i++) {
        Case *c = &s->cases[i];
        c->wanted = line_wanted(bench, "%s %s", c->name, precision_text(c->precision));
        if (c->wanted) c->kernel = kit_add(&s->kit, &c->desc);
    }
    kit_compile(&s->kit);
    report_section(&bench->report, "rows",
                   "Row programs and whole arrays, alone (512 wide, 8192 tokens; most are parts of other "
                   "kernels in a step)",
                   columns, COUNT_OF(columns));
    for (int i = 0; i < s->n; i++)
        if (s->cases[i].wanted) run_case(bench, s, &s->cases[i]);
    kit_close(&s->kit);
    for (int i = 0; i < s->n; i++) model_destroy(s->cases[i].m);
    arena_destroy(arena);
    free(s);
}
