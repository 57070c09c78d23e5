// SPDX-License-Identifier: Apache-2.0
// Source text for every kernel, and the check that its parameters are the ones this kernel was
// described with: libclang's reading of the generated source decides, not what lowering believes.
#include "compiler/lower/pass.h"

static const Bind *find_bind(const Kernel *kernel, const char *name) {
    for (uint32_t i = 0; i < kernel->n_binds; i++) {
        if (!strcmp(kernel->binds[i].name, name)) return &kernel->binds[i];
    }
    return NULL;
}

static const char *const_word(bool is_const) {
    return is_const ? "const " : "";
}

static bool check_binds(Lower *l, const Kernel *kernel) {
    const PlanKernel *made = &l->plan->kernels[kernel->plan];
    for (uint32_t i = 0; i < made->n_args; i++) {
        const PlanArg *arg = &made->args[i];
        const Bind *bind = find_bind(kernel, arg->name);
        if (!bind) {
            return lower_fail(
                l, kernel->node,
                "internal error: kernel %s has a parameter '%s' that lowering gives no "
                "buffer",
                made->entry, arg->name);
        }
        const Buffer *buffer = &l->buffers[bind->buffer];
        bool is_const = bind->remote || bind->mode == OPERAND_READ;
        Dtype dtype = bind->remote ? DTYPE_I64 : (Dtype)buffer->dtype;
        if (arg->dtype == dtype && arg->is_const == is_const) continue;
        return lower_fail(
            l, kernel->node,
            "internal error: kernel %s, parameter '%s': expected %s%s, found %s%s in its "
            "source",
            made->entry, arg->name, const_word(is_const), dtype_name(dtype),
            const_word(arg->is_const), dtype_name((Dtype)arg->dtype));
    }
    if (made->n_args == kernel->n_binds) return true;
    return lower_fail(l, kernel->node,
                      "internal error: kernel %s: expected %u parameters, found %u in its source",
                      made->entry, kernel->n_binds, made->n_args);
}

bool pass_generate(Lower *l) {
    for (uint32_t t = 0; t < l->n_kernels; t++) {
        Kernel *kernel = &l->kernels[l->order[t]];
        if (kernel->op != PLAN_launch) continue;
        if (codegen_kernel(l->codegen, &kernel->desc, &kernel->plan) != OK) {
            lower_fail(l, kernel->node, "%s", status_message());
            return false;
        }
        if (!check_binds(l, kernel)) return false;
    }
    return true;
}
