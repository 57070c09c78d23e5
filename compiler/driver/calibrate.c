// SPDX-License-Identifier: Apache-2.0
// `moec calibrate`: measures the machine at hand and writes it as a file that --cluster takes. Under a launcher
// the ranks measure the device together, as they will share it, and then what lies between them.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/driver/driver.h"
#include "compiler/driver/line.h"
#include "compiler/driver/measure.h"
#include "runtime/comm/comm.h"

typedef struct Calibrate {
    const char *device, *out, *name;
    double seconds;
    int threads;
    Comm *comm;
    bool told; // what went wrong, by another rank
} Calibrate;

static volatile sig_atomic_t stopped;

static void stop(int number) {
    (void)number;
    stopped = 1;
}

static Status pulse(void *user, const char *what) {
    static const char *last;
    const Calibrate *c = user;
    if (stopped) return status_fail(ERR_INTERRUPTED, "interrupted");
    comm_at(c->comm, NULL); // to ranks that are done already
    if (c->comm->rank == 0 && last != what) {
        if (isatty(2)) fprintf(stderr, "\r%-40s", what);
        else log_info("%s", what);
        last = what;
    }
    return OK;
}

/* The file ------------------------------------------------------------------------------------- */

static void add_products(Text *out, const char *field, const CostMatmul *p) {
    text_printf(out,
                "    %s = m.products { peak = %.4g, reach = %.3f, depth = %.0f, tile = { %d, %d }, experts = %.3f,\n"
                "                      experts_depth = %.0f, wgrad = %.3f, evidence = \"measured\", source = source },\n",
                field, p->flop_per_s, p->reach, p->depth_k, p->tile_m, p->tile_n, p->experts, p->experts_depth_k, p->wgrad);
}

static void add_shares(Text *out, const char *field, const CostCurve *curve) {
    if (!curve->n) return;
    text_printf(out, "    %s = m.curve { evidence = \"measured\", source = source, points = {", field);
    for (int i = 0; i < curve->n; i++) text_printf(out, " { %.0f, %.3f },", curve->x[i], curve->y[i]);
    text_add(out, " } },\n");
}

static void add_attention(Text *out, const CostDevice *d) {
    if (!d->attention[0].n) return;
    add_shares(out, "attention", &d->attention[0]);
    add_shares(out, "attention_back", &d->attention[1]);
    text_printf(out, "    attention_narrow = known(%.3f), attention_block = known(%.0f),\n", d->attention_narrow, d->attention_block);
}

static void add_curve(Text *out, const CostCurve *curve, const char *field) {
    if (!curve->n) return;
    text_printf(out, "      %s = { m.curve { ranks = %d, evidence = \"measured\", source = source, points = {\n       ", field, curve->ranks);
    for (int i = 0; i < curve->n; i++) text_printf(out, " { %.0f, %.4g },", curve->x[i], curve->y[i]);
    text_add(out, " } } },\n");
}

static void add_link(Text *out, const CostLink *link) {
    if (link->size <= 1) {
        text_add(out, "    m.link { name = \"none\", size = 1, rate = known(1e9) },\n");
        return;
    }
    text_printf(out, "    m.link {\n      name = \"ranks\", size = %d, rate = known(%.4g), latency = known(%.3g),\n",
                link->size, link->bytes_per_s, link->latency_s);
    for (CostCollective what = 0; what < N_COLLECTIVES; what++)
        add_curve(out, &link->curves[what][0], cost_collective_name[what]);
    if (link->row_bytes_per_s[0] > 0)
        text_printf(out, "      row_fixed = known(%.3g), rows_out = known(%.4g), rows_back = known(%.4g),\n",
                    link->row_fixed_s, link->row_bytes_per_s[0], link->row_bytes_per_s[1]);
    text_add(out, "    },\n");
}

// A string of Lua.
static void add_string(Text *out, const char *text) {
    text_add(out, "\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') text_add(out, "\\");
        if ((unsigned char)*text >= ' ') text_add_n(out, text, 1); // of UTF-8 every byte
    }
    text_add(out, "\"");
}

static void describe(const Calibrate *c, const CostDevice *d, const CostLink *link, Text *out) {
    text_add(out, "local m = require \"moec\"\n\nlocal source = \"moec calibrate\"\n"
                  "local function known(value) return m.figure { value = value, evidence = \"measured\", source = source } "
                  "end\n\nreturn m.cluster {\n  name = ");
    add_string(out, c->name);
    text_add(out, ",\n  device = {\n    name = ");
    add_string(out, d->name);
    text_printf(out, ", arch = \"%s\", units = %d, memory = known(%lld), bandwidth = known(%.4g),\n", d->arch, d->units,
                (long long)d->memory_bytes, d->bytes_per_s);
    text_printf(out, "    launch = known(%.3g), stream = known(%.3f), adam = known(%.3f), move = known(%.3f),\n", d->launch_s,
                d->stream, d->adam, d->move);
    if (d->row_flop_per_s > 0) text_printf(out, "    row_rate = known(%.4g),\n", d->row_flop_per_s);
    bool cpu = !strcmp(d->arch, "cpu"); // of a GPU it is taken to be as usual
    text_printf(out, cpu ? "    sustained = known(%.3f), overlap = known(%.2f)," : "    sustained = known(%.3f), overlap = %.2f,",
                d->sustained, d->overlap);
    if (d->sharing > 1) text_printf(out, " sharing = known(%.2f),", d->sharing);
    text_printf(out, " contention = %.2f, reserved = %d,\n    source = \"moec calibrate; plain numbers are not measured\",\n",
                d->contention, cpu ? 64 << 20 : 1 << 30);
    add_products(out, "bf16", &d->matmul[PRECISION_BF16]);
    add_products(out, "fp32", &d->matmul[PRECISION_FP32]);
    add_shares(out, "cached", &d->cached);
    add_attention(out, d);
    text_add(out, "  },\n  links = {\n");
    add_link(out, link);
    text_add(out, "  },\n}\n");
}

static const char seal[] = "-- as moec calibrate wrote it: ";

// The last line, by which a file is known that nobody has changed.
static void add_seal(Text *out) {
    char hex[33];
    hash_hex(hash_bytes(text_cstr(out), out->bytes), hex);
    text_printf(out, "%s%s\n", seal, hex);
}

// Figures of an hour, or of somebody's own, are not written over.
static Status may_replace(const char *path, Arena *arena) {
    struct stat info;
    char *text, *last = NULL, hex[33];
    size_t bytes;
    if (stat(path, &info) || !S_ISREG(info.st_mode) || !info.st_size) return OK;
    TRY(file_read(path, arena, &text, &bytes));
    for (char *at = text; (at = strstr(at, seal)); at += strlen(seal)) last = at;
    if (last) hash_hex(hash_bytes(text, (size_t)(last - text)), hex);
    if (last && !strncmp(last + strlen(seal), hex, 32) && !strcmp(last + strlen(seal) + 32, "\n")) return OK;
    return status_fail(ERR_ARGUMENT, "-o: %s is there and is not as moec calibrate writes it\n  hint: another name, -o %s, "
                       "or remove it", path, strcmp(path, "cluster.lua") ? "cluster.lua" : "here.lua");
}

static void show(const CostDevice *d, const CostLink *link) {
    const CostMatmul *bf16 = &d->matmul[PRECISION_BF16], *fp32 = &d->matmul[PRECISION_FP32];
    if (bf16->flop_per_s > 0) printf("  products   bf16 %.4g GFLOP/s", bf16->flop_per_s / 1e9);
    if (fp32->flop_per_s > 0) printf(", fp32 %.4g", fp32->flop_per_s / 1e9);
    if (bf16->flop_per_s > 0) printf("; %.0f %% under load that lasts", 100 * d->sustained);
    if (bf16->experts > 0) printf("; experts %.0f %%, wgrads %.0f %%", 100 * bf16->experts, 100 * bf16->wgrad);
    if (bf16->flop_per_s > 0) printf("\n");
    if (d->bytes_per_s > 0)
        printf("  memory     %.4g GB/s, %.0f %% of it by sums, %.0f %% hidden by products\n", d->bytes_per_s / 1e9,
               100 * d->stream, 100 * d->overlap);
    if (d->cached.n)
        printf("  caches     %.1f times as fast to kernels of %.0f MB, %.1f of %.0f MB\n", d->cached.y[0], d->cached.x[0] / 1e6,
               d->cached.y[d->cached.n - 1], d->cached.x[d->cached.n - 1] / 1e6);
    if (d->row_flop_per_s > 0) printf("  rows       %.4g GFLOP/s of row operations\n", d->row_flop_per_s / 1e9);
    if (d->launch_s > 0) printf("  launch     %.2f us\n", d->launch_s * 1e6);
    const CostCurve *at = d->attention;
    if (at[0].n)
        printf("  attention  %.0f to %.0f %% of the peak at lengths %.0f to %.0f, backward %.0f to %.0f %%\n",
               100 * at[0].y[0], 100 * at[0].y[at[0].n - 1], at[0].x[0], at[0].x[at[0].n - 1], 100 * at[1].y[0],
               100 * at[1].y[at[1].n - 1]);
    if (d->sharing > 1) printf("  cores      shared: %.2f times as fast while the other ranks wait\n", d->sharing);
    if (link->size <= 1) return;
    printf("  ranks      %d: up to %.4g GB/s, %.1f us; rows %.4g GB/s out, %.4g back\n", link->size,
           link->bytes_per_s / 1e9, link->latency_s * 1e6, link->row_bytes_per_s[0] / 1e9,
           link->row_bytes_per_s[1] / 1e9);
}

static Status write_file(const Calibrate *c, const CostDevice *d, const CostLink *link) {
    Text text = { 0 };
    if (c->comm->rank) return OK;
    Arena *arena = arena_create();
    Status free = may_replace(c->out, arena); // somebody may have written there meanwhile
    arena_destroy(arena);
    TRY(free);
    describe(c, d, link, &text);
    add_seal(&text);
    Status status = file_write_atomic(c->out, text_cstr(&text), text.bytes);
    text_finish(&text);
    return status;
}

/* The command ---------------------------------------------------------------------------------- */

static Status read_args(Calibrate *c, Options *options, int argc, char **argv) {
    const char *word;
    TRY(line_word(options, FOR_CALIBRATE, argc, argv, &word));
    if (word) return status_fail(ERR_ARGUMENT, "unexpected '%s'\n  hint: moec calibrate -o cluster.lua", word);
    c->device = options->measured;
    c->out = options->calibrated_out;
    c->name = options->cluster_name;
    c->seconds = options->measure_s;
    c->threads = (int)options->measure_threads;
    TRY(driver_lua_name("-o", c->out));
    TRY(driver_writable(c->out));
    return may_replace(c->out, options->arena);
}

static void clear_line(const Calibrate *c) {
    if (isatty(2) && c->comm->rank == 0) fprintf(stderr, "\r%40s\r", "");
}

// Ranks that share cores: what one has of them while the others wait.
static Status measure_sharing(Calibrate *c, const MeasureOptions *options, Arena *arena, CostDevice *device) {
    const CostMatmul *fp32 = &device->matmul[PRECISION_FP32];
    double rate = 0;
    Status status = OK;
    if (!options->crowded) return OK;
    TRY(c->comm->api->barrier(c->comm, GROUP_dp));
    if (c->comm->rank == 0) status = measure_products(options, arena, &rate);
    TRY(comm_agree(c->comm, status));
    if (c->comm->rank == 0 && fp32->flop_per_s > 0)
        device->sharing = fmin(fmax(rate / (fp32->flop_per_s * fp32->reach), 1), c->comm->n_ranks);
    return OK;
}

// Of the device alone as soon as it is known, so that an interruption leaves that; of less, only what is printed. What was
// measured is printed where the file cannot be written, too.
static Status calibrate(Calibrate *c, Arena *arena) {
    int ranks = c->comm->n_ranks;
    if (!c->threads && ranks > 1) c->threads = (int)max_i64(sysconf(_SC_NPROCESSORS_ONLN) / ranks, 1);
    MeasureOptions options = { .device = c->device, .threads = c->threads, .seconds = c->seconds,
                               .alone = ranks == 1 && c->threads == 1,
                               .crowded = (long)ranks * max_i64(c->threads, 1) > sysconf(_SC_NPROCESSORS_ONLN),
                               .pulse = pulse, .user = c };
    CostDevice device = { 0 };
    CostLink link = { .size = 1 };
    bool written = false;
    TRY(comm_mesh(c->comm, &(PlanMesh){ .size = { 1, 1, ranks } }));
    Status status = comm_agree(c->comm, measure_device(&options, arena, &device));
    bool known = status == OK;
    device.memory_bytes /= ranks; // processes of one machine share it
    if (known) written = (status = write_file(c, &device, &link)) == OK;
    if (written && ranks > 1) {
        status = measure_link(c->comm, &options, &link);
        if (status == OK) status = measure_sharing(c, &options, arena, &device);
        if (status == OK) written = (status = write_file(c, &device, &link)) == OK;
        else link = (CostLink){ .size = 1 };
    }
    clear_line(c);
    if (c->comm->rank == 0 && (known || status == ERR_INTERRUPTED)) {
        printf("%s: %s, %d units%s\n", written ? c->out : "not written", device.name ? device.name : c->device, device.units,
               ranks > 1 ? " a rank" : "");
        show(&device, &link);
    }
    if (status != ERR_INTERRUPTED) return status;
    c->told = c->comm->rank > 0; // by rank 0, beside what it has printed
    return status_fail(status, "interrupted: %s %s\n  hint: run it again; --seconds 1 takes less time for each figure",
                       c->out, written ? "has the device, and nothing of what lies between ranks"
                                       : "is not written, not all of the device is known");
}

static int run(Calibrate *c, Arena *arena) {
    struct sigaction action = { .sa_handler = stop }, before[2];
    sigaction(SIGINT, &action, &before[0]);
    sigaction(SIGTERM, &action, &before[1]);
    Status status = comm_open(NULL, &c->comm);
    if (status == OK) status = calibrate(c, arena);
    if (status != OK) comm_fail(c->comm, status_message());
    int result = status_exit(status);
    if (status != OK && !c->told && comm_tells(c->comm, status)) result = driver_fail(status);
    comm_close(c->comm);
    sigaction(SIGINT, &before[0], NULL);
    sigaction(SIGTERM, &before[1], NULL);
    return result;
}

int cmd_calibrate(int argc, char **argv) {
    Calibrate c = { 0 };
    Options *options = options_create();
    Status status = read_args(&c, options, argc, argv);
    int result = status == OK ? run(&c, options->arena) : driver_fail(status);
    options_destroy(options);
    return result;
}
