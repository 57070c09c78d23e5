// SPDX-License-Identifier: Apache-2.0
// Arithmetic of layouts.
#include "compiler/layout/layout.h"

Layout layout_single(void) {
    return (Layout){ .pp = 1, .dp = 1, .ep = 1, .chunks = 1, .node = 1, .row_align = 1 };
}

int32_t layout_stage_of_layer(const Layout *layout, int32_t layer, int32_t n_layers) {
    int32_t n = layout->pp * layout->chunks, stage = 0, end = 0;
    for (; stage < n; stage++) {
        // The first n_layers % n of an even split have one more.
        end += layout->stages ? layout->stages[stage] : n_layers / n + (stage < n_layers % n);
        if (layer < end) return stage;
    }
    return n - 1;
}

int32_t layout_stages(const Layout *layout) {
    return layout->n_stages ? layout->n_stages : layout->pp * layout->chunks;
}

int32_t layout_ranks(const Layout *layout) {
    return layout->pp * layout->dp;
}

PlanMesh layout_mesh(const Layout *layout, int32_t stage) {
    PlanMesh mesh = { .stage = stage };
    mesh.size[AXIS_pp] = layout->pp;
    mesh.size[AXIS_edp] = layout->dp / layout->ep;
    mesh.size[AXIS_ep] = layout->ep;
    if (layout->transport == TRANSPORT_BLOCKS && layout->node > 1) mesh.node = layout->node;
    return mesh;
}
