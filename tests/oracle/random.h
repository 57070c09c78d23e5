// SPDX-License-Identifier: Apache-2.0
// Random graphs: whatever the shape rules accept, so that fusion meets shapes nobody thought of.
#ifndef MOEC_TEST_RANDOM_H
#define MOEC_TEST_RANDOM_H

#include "compiler/model/model.h"

// A model of about `n_ops` operations over all row axes, every unread value a loss. Values stay of order
// one (tanh after products and contractions), and choices are made among exact numbers only, so that
// fp32 and float64 take the same ones. `smooth`: no operation with a kink, for differences.
Model *random_model(uint64_t seed, int n_ops, int32_t sequence, bool smooth);

#endif
