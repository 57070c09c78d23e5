// SPDX-License-Identifier: Apache-2.0
// Trains a small model with one template changed, to see that a sanitizer reports what it does.
#ifndef MOEC_TEST_FENCE_CHANGED_H
#define MOEC_TEST_FENCE_CHANGED_H

#include "tests/driver/small.h"

int changed_make(void **state);
// A template with its one `from` replaced; the others are as they are.
void changed_template(const char *name, const char *from, const char *to);
int changed_train(const char *threads); // a step; exit status
#endif
