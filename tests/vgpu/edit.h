// SPDX-License-Identifier: Apache-2.0
// A correct kernel and edits of its text: each edit leaves out or changes one statement, and what
// the virtual GPU says of it is compared.
#ifndef MOEC_TESTS_VGPU_EDIT_H
#define MOEC_TESTS_VGPU_EDIT_H

#include "tests/vgpu/gpu.h"

typedef struct Edit {
    const char *from, *to; // the first place of `from`; "" for no edit
    VgFault fault;
    const char *says[4]; // all in the report
} Edit;

// Loads `text` with the edit made.
void edit_load(Gpu *gpu, const char *text, const Edit *edit);
// Fails the test unless `got` is the edit's fault and the report says what it must.
void edit_expect(Gpu *gpu, const Edit *edit, VgFault got);

#endif
