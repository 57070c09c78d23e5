// SPDX-License-Identifier: Apache-2.0
// What `moec train --trace` measured, read back: seconds by what was done.
#ifndef MOEC_DRIVER_MEASURED_H
#define MOEC_DRIVER_MEASURED_H

#include "runtime/plan/timeline.h"

typedef struct Measured {
    const char *lines; size_t n_lines; // its events as they stand, for another picture
    double step_s;           // mean of its steps, of the slowest rank each
    int32_t steps, ranks;
    double work_s[N_WORK];   // of a rank in a step, waits included
    double load;             // experts' products: busiest rank over mean, 1 where there is one rank
    struct MeasuredTime *times; uint32_t n_times, cap_times;
} Measured;

// ERR_FORMAT: it is no trace of moec's executor.
Status measured_read(const char *path, Arena *arena, Measured *out);
// Seconds of an instruction: of a kernel the mean of all its launches, of a crossing the shortest, since others
// wait. Negative: the trace does not have it.
double measured_s(const Measured *measured, const Plan *plan, const PlanProgram *program, int32_t instr);

#endif
