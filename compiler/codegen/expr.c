// SPDX-License-Identifier: Apache-2.0
// Operations as C: the one place to touch for a new map.
#include <math.h>

#include "compiler/codegen/row.h"

typedef struct Form {
    const char *real, *ints;
} Form; // by the kind of the operands

static const Form forms[N_ROW_OPS] = {
    [OP_ADD] = { "$0 + $1", "$0 + $1" },
    [OP_SUB] = { "$0 - $1", "$0 - $1" },
    [OP_MUL] = { "$0 * $1", "$0 * $1" },
    [OP_DIV] = { "$0 / $1", NULL },
    [OP_NEG] = { "-$0", "-$0" },
    [OP_RECIP] = { "v_splat(1.0f) / $0", NULL },
    [OP_POW] = { "v_pow($0, $1)", NULL },
    [OP_IDIV] = { NULL, "vi_div($0, $1)" },
    [OP_MOD] = { NULL, "vi_mod($0, $1)" },
    [OP_EXP] = { "v_exp($0)", NULL },
    [OP_LOG] = { "v_log($0)", NULL },
    [OP_SQRT] = { "v_sqrt($0)", NULL },
    [OP_RSQRT] = { "v_splat(1.0f) / v_sqrt($0)", NULL },
    [OP_ABS] = { "v_abs($0)", "vi_abs($0)" },
    [OP_SIGN] = { "v_sign($0)", NULL },
    [OP_SIGMOID] = { "v_sigmoid($0)", NULL },
    [OP_TANH] = { "v_tanh($0)", NULL },
    [OP_ERF] = { "v_erf($0)", NULL },
    [OP_MIN] = { "v_min($0, $1)", "vi_min($0, $1)" },
    [OP_MAX] = { "v_max($0, $1)", "vi_max($0, $1)" },
    [OP_LT] = { "vi_bool($0 < $1)", "vi_bool($0 < $1)" },
    [OP_LE] = { "vi_bool($0 <= $1)", "vi_bool($0 <= $1)" },
    [OP_GT] = { "vi_bool($0 > $1)", "vi_bool($0 > $1)" },
    [OP_GE] = { "vi_bool($0 >= $1)", "vi_bool($0 >= $1)" },
    [OP_EQ] = { "vi_bool($0 == $1)", "vi_bool($0 == $1)" },
    [OP_NE] = { "vi_bool($0 != $1)", "vi_bool($0 != $1)" },
    [OP_WHERE] = { "v_select(-$0, $1, $2)", "vi_select(-$0, $1, $2)" },
    [OP_CAST] = { "v_bf16($0)", NULL }, // to fp32 nothing is computed
    [ROW_COPY] = { "$0", "$0" },
    [ROW_KEY] = { "v_key($0)", "vi_max($0, vi_splat(TAKEN + 1))" },
    [ROW_FLOAT] = { NULL, "v_of_int($0)" },
    [ROW_COS] = { "v_cos($0)", NULL },
    [ROW_SIN] = { "v_sin($0)", NULL },
};

const char *expr_form(int op, bool real) {
    return real ? forms[op].real : forms[op].ints;
}

void expr_fill(const char *form, const char *const *args, Text *out) {
    for (; *form; form++) {
        if (*form != '$')
            text_add_n(out, form, 1);
        else
            text_add(out, args[*++form - '0']);
    }
}

void expr_literal(double value, bool real, Text *out) {
    if (!real) {
        text_printf(out, "vi_splat(%s%lld)", value < 0 ? "(int)" : "", (long long)value);
        return;
    }
    float number = (float)value;
    text_add(out, "v_splat(");
    if (isnan(number))
        text_add(out, "__builtin_nanf(\"\")");
    else if (isinf(number))
        text_add(out, number < 0 ? "-INFINITE" : "INFINITE");
    else {
        text_add_double(out, number);
        text_add(out, "f");
    }
    text_add(out, ")");
}

const char *row_op_name(int op) {
    static const char *const extra[] = { "load",     "view", "copy",        "pieces",
                                         "partials", "pick", "shifted row", "key",
                                         "float",    "cos",  "sin" };
    return op < N_OPS ? op_info[op].name : extra[op - N_OPS];
}
