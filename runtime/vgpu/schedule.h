// SPDX-License-Identifier: Apache-2.0
// Between the files that run a launch: schedule.c, deadlock.c, launch.c.
#ifndef MOEC_VGPU_SCHEDULE_H
#define MOEC_VGPU_SCHEDULE_H

#include <stdatomic.h>

#include "runtime/vgpu/control.h"

void vg_worker_run(VgWorker *worker);     // until the grid has no more work for it, or a fault
void vg_warp_execute(VgWarp *warp);       // from its pc on, until it leaves (VgHandler)
void vg_cluster_destroy(VgCluster *cluster);
double vg_now(void);
void vg_deadlock(VgWorker *worker);       // reports: nothing can run
void vg_livelock(VgWorker *worker);       // reports if all blocks of all threads spin for ever

#endif
