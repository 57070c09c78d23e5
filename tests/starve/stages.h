// SPDX-License-Identifier: Apache-2.0
// Stages of the way from a spec to a trained model, each run again and again with another of its
// allocations failing.
#ifndef MOEC_TEST_STARVE_STAGES_H
#define MOEC_TEST_STARVE_STAGES_H

// At most `samples` allocations of each stage fail, evenly spaced; 0: every one.
int stages_run(const char *name, int samples);

#endif
