// SPDX-License-Identifier: Apache-2.0
// Names of devices, and the list of kinds.
#include "runtime/device/device.h"

#include <stdio.h>
#include <stdlib.h>

typedef enum Kind { KIND_CPU, KIND_CUDA, KIND_VGPU } Kind;

typedef struct Name {
    Kind kind;
    int ordinal;      // cuda
    const char *arch; // vgpu
} Name;

static bool parse(const char *text, Name *out) {
    *out = (Name){ 0 };
    if (!strcmp(text, "cpu")) return true;
    if (!strncmp(text, "cuda", 4)) {
        out->kind = KIND_CUDA;
        if (!text[4]) return true;
        size_t n = text[4] == ':' ? strspn(text + 5, "0123456789") : 0;
        if (!n || n > 4 || text[5 + n]) return false;
        out->ordinal = atoi(text + 5);
        return true;
    }
    if (strncmp(text, "vgpu:", 5)) return false;
    char target[32];
    PlanTarget parsed;
    out->kind = KIND_VGPU;
    out->arch = text + 5;
    int n = snprintf(target, sizeof target, "cuda:%s", out->arch);
    return n < (int)sizeof target && plan_target(target, &parsed) && parsed.sm >= PLAN_OLDEST_SM;
}

static Status parse_name(const char *text, Name *out) {
    if (parse(text, out)) return OK;
    return status_fail(ERR_ARGUMENT,
                       "expected a device cpu, cuda, cuda:N or vgpu:ARCH, found '%s'\n"
                       "  hint: %s",
                       text,
                       !strcmp(text, "gpu") ? "cuda is the first GPU, cuda:1 the second"
                                            : "cuda:1 is the second GPU; vgpu:sm_80 needs no GPU");
}

Status device_target(const char *name, Arena *arena, const char **target) {
    Name parsed;
    TRY(parse_name(name, &parsed));
    if (parsed.kind == KIND_CPU) *target = "cpu";
    if (parsed.kind == KIND_VGPU) *target = arena_printf(arena, "cuda:%s", parsed.arch);
    if (parsed.kind != KIND_CUDA) return OK;
    Device *device;
    TRY(cuda_open(NULL, parsed.ordinal, NULL, &device));
    *target = arena_strdup(arena, device->api->info(device).target);
    device_close(device);
    return OK;
}

Status device_takes(const char *name, const char *target) {
    Name parsed;
    PlanTarget plan;
    TRY(parse_name(name, &parsed));
    if (!plan_target(target, &plan))
        return status_fail(ERR_INPUT, "expected a plan for cpu or cuda:sm_N, found one for '%s'",
                           target);
    if (plan.cuda == (parsed.kind != KIND_CPU)) return OK;
    if (plan.cuda)
        return status_fail(ERR_ARGUMENT,
                           "the plan is for %s and cannot run on a CPU\n"
                           "  hint: --device cuda, or --device vgpu:%s without a GPU",
                           target, target + strlen("cuda:"));
    return status_fail(ERR_ARGUMENT,
                       "the plan is for a CPU and cannot run on --device %s\n"
                       "  hint: lower the spec again with --device %s",
                       name, name);
}

Status device_fits(const char *name, const char *target) {
    TRY(device_takes(name, target));
    Arena *arena = arena_create();
    const char *unused;
    Status status = device_target(name, arena, &unused);
    arena_destroy(arena);
    return status;
}

const char *device_of_target(const char *target) {
    PlanTarget parsed;
    return plan_target(target, &parsed) && parsed.cuda ? "cuda" : "cpu";
}

Status device_open(const char *name, Pool *pool, Device **out) {
    Name parsed;
    *out = NULL;
    TRY(parse_name(name, &parsed));
    if (parsed.kind == KIND_CPU) return cpu_open(pool, out);
    return cuda_open(parsed.arch, parsed.ordinal, pool, out);
}

void device_close(Device *device) {
    if (device) device->api->close(device);
}
