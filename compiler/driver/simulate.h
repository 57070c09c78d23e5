// SPDX-License-Identifier: Apache-2.0
// What both ways of `moec simulate` share.
#ifndef MOEC_DRIVER_SIMULATE_H
#define MOEC_DRIVER_SIMULATE_H

#include "compiler/driver/plan_args.h"
#include "compiler/search/picture.h"

// --cluster, or as many cores as ranks; "b300" is as many as there are ranks. Prints what is wrong; returns
// the exit status.
int simulate_cluster(const PlanArgs *args, Arena *arena, int32_t ranks, CostCluster *out);
enum { PICTURE_COLUMNS = 66 /* a terminal's 80 with the edges */ };
enum { SIMULATED = 1 << 20 /* processes of a trace: behind the ranks */ };
Status simulate_svg(const SimPicture *picture, const Sim *sim, const char *title, const char *path, Arena *arena);

// simulate_quick.c
// A line: memory of the fullest stage as another stack accounts for it. Nothing without an account.
void simulate_account(const CostAccount *account, const CostProfile *profile, const CostRun *run);
int simulate_quick(PlanArgs *args, Arena *arena);

#endif
