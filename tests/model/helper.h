// SPDX-License-Identifier: Apache-2.0
// Small graphs by hand, and their printed forms, for the tests of the Model.
#ifndef MOEC_TESTS_MODEL_HELPER_H
#define MOEC_TESTS_MODEL_HELPER_H

// cmocka wants these four first
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "compiler/model/model.h"

// Dimensions end at the first 0: TOKENS_OF(m, "x", 4, 64) is real [T, 4, 64] named x in `text_of`.
uint32_t leaf(Model *m, const char *name, const int32_t *dims, RowKind row, uint32_t route);
#define LEAF(m, name, row, route, ...)                                                             \
    leaf(m, name, (const int32_t[]){ __VA_ARGS__ __VA_OPT__(, ) 0 }, row, route)
#define TOKENS_OF(m, name, ...) LEAF(m, name, ROW_T, 0, __VA_ARGS__)
#define SCALARS_OF(m, name, ...) LEAF(m, name, ROW_NONE, 0, __VA_ARGS__)
uint32_t param(Model *m, const char *name, const int32_t *dims, uint32_t route);
#define PARAM(m, name, ...) param(m, name, (const int32_t[]){ __VA_ARGS__ __VA_OPT__(, ) 0 }, 0)
#define EXPERT_PARAM(m, name, route, ...)                                                          \
    param(m, name, (const int32_t[]){ __VA_ARGS__ __VA_OPT__(, ) 0 }, route)
uint32_t ids_of(Model *m, int32_t k); // int [T, k]
uint32_t route_of(Model *m, int32_t k, int32_t experts);
uint32_t rows_of_route(Model *m, const char *name, uint32_t route, int32_t n); // real [R, n]

uint32_t node_k(Model *m, Op op, int32_t k, uint32_t a, uint32_t b); // attr.k; b 0: one operand
uint32_t matmul(Model *m, Op op, int over, int each, uint32_t x, uint32_t w);
uint32_t attend(Model *m, uint32_t q, uint32_t k, uint32_t v, uint32_t sinks, int32_t window);
uint32_t cut(Model *m, Op op, int axis, int at, int size, uint32_t x); // slice, pad
uint32_t concat(Model *m, int axis, const uint32_t *parts, int n);

Type type_of_dims(RowKind row, const int32_t *dims);
#define TYPE(row, ...) type_of_dims(row, (const int32_t[]){ __VA_ARGS__ __VA_OPT__(, ) 0 })

// "mul(x, rsqrt(y))": the expression below a node; leaves by name, constants by value.
const char *text_of(Model *m, uint32_t id);
const char *type_text(Model *m, uint32_t id); // "real [T, 4]"
#define assert_text(m, id, text) assert_string_equal(text_of(m, id), text)
#define assert_type(m, id, text) assert_string_equal(type_text(m, id), text)
int count_op(const Model *m, Op op);
uint32_t find_op(const Model *m, Op op); // the last one, 0 if none

#endif
