// SPDX-License-Identifier: Apache-2.0
#include "tests/cost/help.h"

#include "compiler/spec/spec.h"

const char *const machines[] = { "a100",    "h100",    "h200",       "b200", "b300", "gb200", "gb300", "l40s",
                                 "rtx4090", "rtx5090", "rtxpro6000", "cpu" };
const int n_machines = COUNT_OF(machines);

CostCluster cluster_named(const char *name, Arena *arena) {
    CostCluster cluster;
    Text error = { 0 };
    bool done = spec_load_cluster(name, arena, &cluster, &error);
    if (!done) fail_msg("%s", text_cstr(&error));
    text_finish(&error);
    return cluster;
}

CostKernel product(uint8_t precision, double groups, double m, double n, double k) {
    double size = precision == PRECISION_FP32 ? 4 : 2;
    return (CostKernel){ .class = groups > 1 ? COST_experts : COST_dense,
                         .precision = precision,
                         .m = m,
                         .n = n,
                         .k = k,
                         .groups = groups,
                         .flops = 2 * m * n * k,
                         .bytes = size * (m * k + groups * k * n + m * n) };
}
