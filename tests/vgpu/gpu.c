// SPDX-License-Identifier: Apache-2.0
#include "tests/vgpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

Gpu gpu_open(const char *arch, int threads) {
    Gpu gpu = { 0 };
    assert_int_equal(vg_device_create(arch, threads, &gpu.device), OK);
    gpu.memory = vg_device_memory(gpu.device);
    return gpu;
}

void gpu_close(Gpu *gpu) { vg_device_destroy(gpu->device); }

void (*gpu_on_load)(VgModule *module);

Status gpu_try_load(Gpu *gpu, const char *ptx) {
    Text text = { 0 };
    if (!strstr(ptx, ".version"))
        text_add(&text, ".version 9.0\n.target sm_80\n.address_size 64\n");
    text_add(&text, ptx);
    vg_module_unload(gpu->module);
    Status status = vg_module_load(gpu->device, text.at, text.bytes, &gpu->module);
    text_finish(&text);
    if (status == OK && gpu_on_load) gpu_on_load(gpu->module);
    return status;
}

void gpu_load(Gpu *gpu, const char *ptx) {
    if (gpu_try_load(gpu, ptx) != OK) fail_msg("%s\nin:\n%s", status_message(), ptx);
}

uint64_t gpu_put(Gpu *gpu, const void *from, size_t bytes) {
    uint64_t at;
    assert_int_equal(vg_mem_alloc(gpu->memory, VG_GLOBAL, bytes, 256, "test", &at), OK);
    assert_int_equal(vg_mem_write(gpu->memory, at, from, bytes), OK);
    return at;
}

uint64_t gpu_alloc(Gpu *gpu, size_t bytes) {
    void *zeros = calloc(1, bytes);
    assert_non_null(zeros);
    uint64_t at = gpu_put(gpu, zeros, bytes);
    free(zeros);
    return at;
}

void gpu_get(Gpu *gpu, uint64_t from, void *to, size_t bytes) {
    if (vg_mem_read(gpu->memory, from, to, bytes, false) != OK) fail_msg("%s", status_message());
}

VgFault gpu_launch(Gpu *gpu, const char *name, uint32_t blocks, uint32_t threads, int n_params,
                   ...) {
    uint64_t params[16];
    va_list list;
    va_start(list, n_params);
    for (int k = 0; k < n_params; k++) params[k] = va_arg(list, uint64_t);
    va_end(list);
    VgKernel *kernel = vg_module_kernel(gpu->module, name);
    assert_non_null(kernel);
    VgLaunch launch = {
        .kernel = kernel, .grid = { blocks, 1, 1 }, .block = { threads, 1, 1 }, .params = params
    };
    return vg_run(gpu->device, &launch);
}

const char *gpu_report(Gpu *gpu) { return vg_reports_last(vg_device_reports(gpu->device)); }

// One register: declaration, load from the item's 8 bytes, store back.
static void declare(Text *t, const char *name, int bits) {
    if (bits == 1) text_printf(t, ".reg .pred %s; .reg .b32 %s_word;\n", name, name);
    else if (bits) text_printf(t, ".reg .b%d %s;\n", bits, name);
}

static void load(Text *t, const char *name, int bits, int at) {
    if (bits == 1)
        text_printf(t, "ld.global.u32 %s_word, [%%rd+%d]; setp.ne.s32 %s, %s_word, 0;\n", name, at,
                    name, name);
    else if (bits) text_printf(t, "ld.global.b%d %s, [%%rd+%d];\n", bits, name, at);
}

void gpu_op(Gpu *gpu, const GpuOp *op, int n, const uint64_t *a, const uint64_t *b,
            const uint64_t *c, uint64_t *d) {
    Text t = { 0 };
    text_add(&t, ".visible .entry op(.param .u64 data, .param .u64 count) {\n"
                 ".reg .b64 %rd, %off, %n; .reg .b32 %t, %c; .reg .pred %p;\n");
    declare(&t, "d", op->d);
    declare(&t, "a", op->a);
    declare(&t, "b", op->b);
    declare(&t, "c", op->c);
    text_add(
        &t,
        "mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.s32 %t, %c, 32, %t;\n"
        "ld.param.u64 %n, [count]; cvt.u64.u32 %off, %t; setp.ge.u64 %p, %off, %n; @%p bra END;\n"
        "ld.param.u64 %rd, [data]; mad.wide.u32 %rd, %t, 32, %rd;\n");
    load(&t, "d", op->d, 0);
    load(&t, "a", op->a, 8);
    load(&t, "b", op->b, 16);
    load(&t, "c", op->c, 24);
    text_printf(&t, "%s\n", op->text);
    if (op->d == 1) text_add(&t, "selp.b32 d_word, 1, 0, d; st.global.u32 [%rd], d_word;\n");
    else text_printf(&t, "st.global.b%d [%%rd], d;\n", op->d);
    text_add(&t, "END: ret; }\n");
    gpu_load(gpu, t.at);
    uint64_t *items = calloc((size_t)n * 4, 8);
    assert_non_null(items);
    for (int k = 0; k < n; k++) {
        items[4 * k] = d[k];
        items[4 * k + 1] = a ? a[k] : 0;
        items[4 * k + 2] = b ? b[k] : 0;
        items[4 * k + 3] = c ? c[k] : 0;
    }
    uint64_t data = gpu_put(gpu, items, (size_t)n * 32);
    VgFault fault = gpu_launch(gpu, "op", (uint32_t)(n + 31) / 32, 32, 2, data, (uint64_t)n);
    if (fault) fail_msg("%s: %s", op->text, gpu_report(gpu));
    gpu_get(gpu, data, items, (size_t)n * 32);
    uint64_t keep = op->d == 64 ? ~0ull : op->d == 1 ? 0xffffffff : (1ull << op->d) - 1;
    for (int k = 0; k < n; k++) d[k] = items[4 * k] & keep;
    assert_int_equal(vg_mem_free(gpu->memory, data), OK);
    free(items);
    text_finish(&t);
}
