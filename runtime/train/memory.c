// SPDX-License-Identifier: Apache-2.0
// Whether a plan fits into the machine's memory. The regions of a plan are mapped without a reserve,
// so one that is too large would start and be ended by the system, without a word, in its first step.
#include <inttypes.h>

#include "runtime/train/train.h"

enum { PATH_BYTES = 4096 };

// The number after `key` in a file of lines; without a key, the file's first word. -1: none.
static int64_t number_in(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char line[256];
    int64_t number = -1;
    size_t n = strlen(key);
    while (number < 0 && fgets(line, sizeof line, file))
        if (!strncmp(line, key, n) && sscanf(line + n, "%" SCNd64, &number) != 1) number = -1;
    fclose(file);
    return number;
}

static int64_t smaller(int64_t bytes, int64_t limit) {
    return limit >= 0 && limit < bytes ? limit : bytes;
}

// A limit that is "max" is no number.
int64_t memory_group_limit(const char *groups, const char *root) {
    FILE *file = fopen(groups, "re");
    if (!file) return INT64_MAX;
    char line[PATH_BYTES], path[2 * PATH_BYTES];
    int64_t limit = INT64_MAX;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "0::/", 4)) continue;
        char *group = line + 3;
        group[strcspn(group, "\n")] = 0;
        for (char *slash; (slash = strrchr(group, '/')); *slash = 0) {
            snprintf(path, sizeof path, "%s%s/memory.max", root, group);
            limit = smaller(limit, number_in(path, ""));
        }
        snprintf(path, sizeof path, "%s/memory.max", root);
        limit = smaller(limit, number_in(path, ""));
    }
    fclose(file);
    return limit;
}

int64_t memory_available(void) {
    int64_t kib = number_in("/proc/meminfo", "MemAvailable:");
    int64_t bytes = kib < 0 ? INT64_MAX : kib * 1024;
    bytes = smaller(bytes, memory_group_limit("/proc/self/cgroup", "/sys/fs/cgroup"));
    return smaller(bytes, number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "")); // version 1
}

Status memory_check(const Plan *plan, int64_t available) {
    int64_t peak = plan_peak(plan);
    PlanTarget target;
    if (plan_target(plan->target, &target) && target.cuda) return OK;
    if (peak <= available) return OK;
    return status_fail(ERR_MEMORY,
                       "training needs %.2f GiB of memory, and %.2f GiB are available here\n  hint: "
                       "%s",
                       (double)peak / 0x1p30, (double)available / 0x1p30,
                       plan->tokens > plan->sequence
                           ? "a smaller --microbatch, or a smaller model"
                           : "a shorter sequence, or a smaller model");
}
