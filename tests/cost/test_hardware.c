// SPDX-License-Identifier: Apache-2.0
// Clusters in Lua: every shipped one is whole, a user's own takes a few lines, and what is wrong is told with
// its place.
#include "compiler/spec/spec.h"
#include "tests/cost/help.h"

static bool load_text(const char *text, CostCluster *out, Arena *arena, Text *error) {
    return spec_load_cluster_text("c.lua", text, strlen(text), arena, out, error);
}

static void shipped(void **state) {
    (void)state;
    Arena *arena = arena_create();
    for (int i = 0; i < n_machines; i++) {
        CostCluster c = cluster_named(machines[i], arena);
        const CostDevice *d = &c.device;
        assert_int_equal(cost_cluster_devices(&c), 1);
        assert_true(d->units > 0 && d->memory_bytes > (4LL << 30) && d->reserved_bytes < d->memory_bytes / 4);
        assert_true(d->bytes_per_s > 1e9 && d->launch_s > 0 && d->launch_s < 1e-4);
        assert_true(d->stream > 0 && d->stream <= 1 && d->move > 0 && d->move <= d->stream && d->adam <= 1);
        assert_true(d->contention >= 1 && d->contention <= 1.3);
        assert_true(d->matmul[PRECISION_BF16].flop_per_s >= d->matmul[PRECISION_FP32].flop_per_s);
        char name[32];
        snprintf(name, sizeof name, "%sx128", machines[i]);
        c = cluster_named(name, arena);
        assert_int_equal(c.n_links, 2);
        assert_int_equal(cost_cluster_devices(&c), 128);
        assert_string_equal(c.name, name);
        assert_true(c.links[1].bytes_per_s < c.links[0].bytes_per_s || !strcmp(machines[i], "l40s") ||
                    !strcmp(c.links[0].name, "pcie") || !strcmp(machines[i], "cpu"));
    }
    arena_destroy(arena);
}

// Names of m.NAME's fields whose type says `kind`, as a list of Lua.
static void list_fields(const char *define, const char *kind, Arena *arena, Text *out) {
    char *text, head[32];
    size_t bytes;
    assert_int_equal(file_read(MOEC_SOURCE_DIR "/dsl/cluster.lua", arena, &text, &bytes), OK);
    snprintf(head, sizeof head, "\nm.%s = m.define", define);
    char *at = strstr(text, head);
    assert_non_null(at);
    *strstr(at, "\n}, describes)") = 0;
    text_add(out, "{ ");
    while ((at = strstr(at, "\n  { \""))) {
        char name[32], type[64];
        at += 5;
        if (sscanf(at, " \"%31[^\"]\", \"%63[^\"]\"", name, type) == 2 && strstr(type, kind)) text_printf(out, "'%s', ", name);
    }
    text_add(out, "}");
}

// Every number of every shipped machine says where it is from.
static void sources(void **state) {
    (void)state;
    static const char *const lists[][3] = { { "device", "number", "numbers" }, { "device", "size", "sizes" },
                                            { "device", "curve", "shares" },   { "link", "number", "rates" } };
    Arena *arena = arena_create();
    for (int i = 0; i < n_machines; i++) {
        Text text = { 0 }, error = { 0 };
        CostCluster c;
        for (int k = 0; k < COUNT_OF(lists); k++) {
            text_printf(&text, "local %s = ", lists[k][2]);
            list_fields(lists[k][0], lists[k][1], arena, &text);
            text_add(&text, "\n");
        }
        text_printf(&text, "local c = require 'moec'.hardware '%sx128'\n", machines[i]);
        text_add(&text, "local function known(block, fields, plain)\n"
                        "  for _, field in ipairs(fields) do\n"
                        "    local x = block[field]\n"
                        "    local source = type(x) == 'number' and plain or type(x) ~= 'number' and (not x or x.source)\n"
                        "    if not source then error(field .. ' of ' .. block.name .. ' has no source') end\n"
                        "  end\n"
                        "end\n"
                        "assert(#numbers >= 10 and #sizes >= 3 and #shares == 3 and #rates >= 6)\n"
                        "known(c.device, numbers, false)\n"
                        "known(c.device, sizes, c.device.source)\n"
                        "known(c.device, shares, false)\n"
                        "for _, link in ipairs(c.links) do\n"
                        "  known(link, rates, false)\n"
                        "  for _, what in ipairs { 'gather', 'reduce_scatter', 'all_to_all', 'send' } do\n"
                        "    for _, curve in ipairs(link[what]) do assert(curve.source) end\n"
                        "  end\n"
                        "end\n"
                        "return c\n");
        if (!load_text(text_cstr(&text), &c, arena, &error)) fail_msg("%s: %s", machines[i], text_cstr(&error));
        text_finish(&text);
        text_finish(&error);
    }
    arena_destroy(arena);
}

static void own(void **state) {
    (void)state;
    Arena *arena = arena_create();
    Text error = { 0 };
    CostCluster c;
    const char *text = "local m = require 'moec'\n"
                       "return m.cluster {\n"
                       "  name = 'mine',\n"
                       "  device = { name = 'X', arch = 'sm_90a', units = 100, memory = 64 * 2^30, bandwidth = 2e12,\n"
                       "             bf16 = 500e12, launch = m.figure { value = 4e-6, evidence = 'measured' } },\n"
                       "  links = {\n"
                       "    m.link { name = 'inside', size = 4, rate = 100e9 },\n"
                       "    m.link { name = 'network', size = 16, rate = 25e9, latency = 5e-6 },\n"
                       "  },\n"
                       "}\n";
    if (!load_text(text, &c, arena, &error)) fail_msg("%s", text_cstr(&error));
    assert_int_equal(cost_cluster_devices(&c), 64);
    assert_string_equal(c.device.name, "X");
    assert_true(c.device.launch_s == 4e-6 && c.device.evidence[1] == EVIDENCE_measured);
    assert_int_equal(c.device.evidence[0], EVIDENCE_specification);
    assert_true(c.device.matmul[PRECISION_MXFP8].flop_per_s == 0);
    CostKernel k = product(PRECISION_BF16, 1, 4096, 4096, 4096);
    double s = cost_kernel_s(&c.device, &k);
    assert_true(s > k.flops / 500e12 && s < 3 * k.flops / 500e12);
    // What a device has unless it says otherwise: traffic hidden, wgrads as fast as forward, row operations as memory.
    assert_true(c.device.sharing == 1 && c.device.overlap == 1 && c.device.matmul[PRECISION_BF16].wgrad == 1 && c.device.row_flop_per_s == 0);
    // One of the shipped ones, changed.
    text = "local m = require 'moec'\n"
           "local c = m.hardware 'b300x16'\n"
           "return c:with { name = 'less memory', device = c.device:with { memory = 1e11 } }\n";
    if (!load_text(text, &c, arena, &error)) fail_msg("%s", text_cstr(&error));
    assert_true(c.device.memory_bytes == 100000000000 && c.links[0].n_curves[COLLECTIVE_gather] == 3);
    arena_destroy(arena);
    text_finish(&error);
}

// Attention takes what was measured: of cuDNN's benchmark of training, in milliseconds, made longer by the clocks of
// load that lasts. Products below the diagonal, or in the window, of forward, and 2.5 times as many of backward.
static void attention(void **state) {
    (void)state;
    static const struct {
        const char *machine;
        double batch, sequence, window, heads, width, ms[2];
    } measured[] = {
        { "gb200", 1, 4096, 0, 64, 128, { 0.206, 0.607 } },   { "gb200", 1, 8192, 0, 64, 128, { 0.688, 2.097 } },
        { "gb300", 1, 4096, 0, 64, 128, { 0.164, 0.575 } },   { "gb300", 1, 32768, 0, 64, 128, { 8.734, 28.390 } },
        { "gb200", 2, 8192, 1024, 64, 64, { 0.423, 0.998 } }, { "gb300", 2, 8192, 1024, 64, 64, { 0.359, 0.965 } },
        { "gb200", 2, 4096, 128, 128, 64, { 0.210, 0.465 } }, { "gb300", 2, 4096, 128, 128, 64, { 0.202, 0.442 } },
    };
    Arena *arena = arena_create();
    for (int i = 0; i < COUNT_OF(measured); i++) {
        CostCluster c = cluster_named(measured[i].machine, arena);
        double s = measured[i].sequence, w = measured[i].window;
        double keys = w > 0 ? w * s - w * w / 2 : s * s / 2;
        CostKernel k = { .class = COST_attention, .precision = PRECISION_BF16, .groups = measured[i].heads,
                         .k = measured[i].heads * 2 * measured[i].width, .n = w > 0 ? w : s };
        for (int back = 0; back < 2; back++) {
            k.role = back ? COST_DGRAD : COST_FORWARD;
            k.flops = measured[i].batch * 2 * k.k * keys * (back ? 2.5 : 1);
            double ms = 1e3 * (cost_kernel_s(&c.device, &k) - c.device.launch_s) * c.device.sustained;
            if (fabs(ms / measured[i].ms[back] - 1) > 0.02)
                fail_msg("%s, %g in %g, %s: %g ms, measured %g", measured[i].machine, w, s, back ? "backward" : "forward",
                         ms, measured[i].ms[back]);
        }
    }
    arena_destroy(arena);
}

// The cluster that the page shows.
static void documented(void **state) {
    (void)state;
    Arena *arena = arena_create();
    char *page;
    size_t bytes;
    assert_int_equal(file_read(MOEC_SOURCE_DIR "/docs/search.md", arena, &page, &bytes), OK);
    char *at = strstr(page, "return m.cluster {");
    assert_non_null(at);
    while (at > page && strncmp(at, "```lua\n", 7)) at--;
    at += 7;
    *strstr(at, "```") = 0;
    CostCluster c;
    Text error = { 0 };
    if (!load_text(at, &c, arena, &error)) fail_msg("%s", text_cstr(&error));
    assert_int_equal(cost_cluster_devices(&c), 128);
    text_finish(&error);
    arena_destroy(arena);
}

static void refused(const char *text, const char *want) {
    Arena *arena = arena_create();
    Text error = { 0 };
    CostCluster c;
    if (load_text(text, &c, arena, &error)) fail_msg("taken: %s", text);
    if (!strstr(text_cstr(&error), want)) fail_msg("expected: %s\ngot: %s", want, text_cstr(&error));
    text_finish(&error);
    arena_destroy(arena);
}

static void wrong(void **state) {
    (void)state;
    refused("return require 'moec'.hardware 'c300x8'", "no machine 'c300x8': expected NAMExCOUNT with one of a100, b200");
    refused("return require 'moec'.hardware 'b300x12'", "b300x12: a node has 8 devices, expected fewer or a multiple");
    refused("return 1", "the file must return a cluster");
#define DEVICE "device = { name = 'X', arch = 'sm_90a', units = 1, memory = 1e9, bandwidth = 1e9, bf16 = 1e12"
#define LINK "m.link { name = 'a', size = 2, rate = 1e9"
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE " }, links = {} }",
            "links must be a list of 1 to 4 of m.link");
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE ", stream = 0 }, links = { " LINK " } } }",
            "stream must be above 0");
    static const struct { const char *field, *message; } shares[] = {
        { "overlap = 1.5", "overlap must be at most 1" }, { "overlap = -1", "overlap must be 0 or more" },
        { "sharing = 0.5", "sharing must be 1 or more" }, { "row_rate = 0.5", "row_rate must be 100000 a second or more" },
        { "sustained = 2", "sustained must be at most 1" },
        { "fp32 = m.products { peak = 1e9, wgrad = 1.5 }", "wgrad must be at most 1" },
        { "fp32 = m.products { peak = 1e9, wgrad = 0 }", "wgrad must be above 0" },
    };
    for (int i = 0; i < COUNT_OF(shares); i++) {
        char text[512];
        snprintf(text, sizeof text, "local m = require 'moec' return m.cluster { name = 'a', " DEVICE
                 ", %s }, links = { " LINK " } } }", shares[i].field);
        refused(text, shares[i].message);
    }
    // Of the usual units of data sheets none is taken for bytes and FLOPs.
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE
            " }, links = { m.link { name = 'a', size = 2, rate = 450 } } }",
            "rate must be 100000 a second or more: 450 GB/s are 450e9");
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE ", fp32 = 67 }, links = { " LINK " } } }",
            "fp32 must be 100000 a second or more");
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE " }, links = { " LINK
            ", gather = { m.curve { points = { { 2, 1 }, { 1, 1 } } } } } } }",
            "points must be pairs { x, y } of numbers above 0, x ascending");
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE " }, links = { " LINK
            ", gather = { 3 } } } }",
            "gather must be made of m.curve");
    refused("local m = require 'moec' return m.cluster { name = 'a', " DEVICE " }, links = { 5 } }",
            "links must be a list of m.link");
    Arena *arena = arena_create();
    Text error = { 0 };
    CostCluster c;
    assert_false(spec_load_cluster("/nowhere/c.lua", arena, &c, &error));
    assert_non_null(strstr(text_cstr(&error), "/nowhere/c.lua"));
    assert_false(spec_load_cluster("b300x8\"x", arena, &c, &error) && c.n_links == 2);
    text_finish(&error);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped), cmocka_unit_test(sources),
        cmocka_unit_test(own),
        cmocka_unit_test(attention),
        cmocka_unit_test(documented),
        cmocka_unit_test(wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
