// SPDX-License-Identifier: Apache-2.0
// Index maps of row programs: offset and strides over feature axes. Strides of unit axes are 0, so
// maps of equal meaning are equal.
#include "compiler/codegen/row.h"

int64_t row_features(const RowShape *shape) {
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= shape->dim[i];
    return n;
}

void row_major(const RowShape *shape, int64_t stride[MAX_RANK]) {
    int64_t n = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        stride[i] = shape->dim[i] == 1 ? 0 : n;
        n *= shape->dim[i];
    }
}

RowShape row_strip(const RowShape *shape) {
    RowShape out = { 0 };
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] != 1) out.dim[out.rank++] = shape->dim[i];
    }
    return out;
}

RowMap row_onto(const RowVal *val, const RowShape *space) {
    RowMap map = { .base = val->map.base, .offset = val->map.offset };
    for (int i = 1; i <= space->rank && i <= val->shape.rank; i++) {
        map.stride[space->rank - i] = val->map.stride[val->shape.rank - i];
    }
    return map;
}

// Takes groups of axes of equal size from both sides, from the left, as an array library does: a
// group of the old axes must be contiguous among themselves, the new axes then subdivide it.
bool row_reshape(const RowMap *map, const RowShape *from, const RowShape *to, RowMap *out) {
    RowShape old = row_strip(from);
    int64_t stride[MAX_RANK];
    for (int i = 0, at = 0; i < from->rank; i++) {
        if (from->dim[i] != 1) stride[at++] = map->stride[i];
    }
    *out = (RowMap){ .base = map->base, .offset = map->offset };
    for (int i = 0, j = 0; i < old.rank;) {
        int end = i + 1, new_end = j;
        int64_t n = old.dim[i], new_n = 1;
        while (new_n != n) {
            if (new_n < n)
                new_n *= to->dim[new_end++];
            else
                n *= old.dim[end++];
        }
        for (int k = i; k + 1 < end; k++) {
            if (stride[k] != stride[k + 1] * old.dim[k + 1]) return false;
        }
        int64_t step = stride[end - 1];
        for (int k = new_end - 1; k >= j; k--) {
            out->stride[k] = to->dim[k] == 1 ? 0 : step;
            step *= to->dim[k];
        }
        i = end, j = new_end;
    }
    return true;
}

RowMap row_slice(const RowVal *val, int axis, int64_t at, int64_t step, int32_t size,
                 RowShape *shape) {
    RowMap map = val->map;
    *shape = val->shape;
    shape->dim[axis] = size;
    map.offset += at * map.stride[axis];
    map.stride[axis] = size == 1 ? 0 : map.stride[axis] * step;
    return map;
}
