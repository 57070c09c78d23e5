// SPDX-License-Identifier: Apache-2.0
// Life of a warp's asynchronous copies (async.h).
#include <stdlib.h>

#include "runtime/vgpu/async.h"

VgCopies *vg_copies(VgWarp *w) {
    if (!w->async) w->async = calloc(1, sizeof(VgCopies));
    return w->async;
}

void vg_copies_reset(VgWarp *w) {
    VgCopies *copies = w->async;
    if (!copies) return;
    copies->n = 0;
    memset(copies->committed, 0, sizeof copies->committed);
}

void vg_copies_destroy(VgWarp *w) {
    VgCopies *copies = w->async;
    if (copies) free(copies->items);
    free(copies);
    w->async = NULL;
}
