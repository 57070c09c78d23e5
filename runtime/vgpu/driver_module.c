// SPDX-License-Identifier: Apache-2.0
// Modules and libraries (both hold one PTX text), their functions and variables, function
// attributes. A kernel of a library and the function of its module are the same object under two
// handle types.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

enum { DYNAMIC_DEFAULT = 48 << 10 }; // shared memory without opting in, static included

/* Loading -------------------------------------------------------------------------------------- */

// The log buffers among the JIT options. The size option's value comes back as the bytes written.
static void write_log(unsigned int n, CUjit_option *options, void **values, CUjit_option buffer,
                      CUjit_option size, const char *text) {
    char *at = NULL;
    unsigned int bytes = 0, size_index = n;
    for (unsigned int i = 0; i < n; i++) {
        if (options[i] == buffer) at = values[i];
        if (options[i] == size) {
            bytes = (unsigned int)(uintptr_t)values[i];
            size_index = i;
        }
    }
    if (size_index == n) return;
    if (at && bytes) {
        snprintf(at, bytes, "%s", text);
        values[size_index] = (void *)(uintptr_t)(strlen(at) + (strlen(at) > 0));
    } else {
        values[size_index] = NULL;
    }
}

// Length of a PTX text, or why the image is none.
static CUresult image_length(const void *image, size_t *n) {
    static const struct { const char *start; size_t bytes; const char *what; } others[] = {
        { "\x7f" "ELF", 4, "a cubin" }, { "\x50\xed\x55\xba", 4, "a fatbin" },
    };
    for (int i = 0; i < COUNT_OF(others); i++)
        if (!strncmp(image, others[i].start, others[i].bytes))
            return vgd_fail(CUDA_ERROR_NO_BINARY_FOR_GPU, "the image is %s; the virtual GPU"
                            " executes"
                            " PTX\n  hint: take PTX from NVRTC (nvrtcGetPTX) or nvcc -ptx",
                            others[i].what);
    *n = strlen(image);
    return CUDA_SUCCESS;
}

static CUresult load(CUcontext context, const void *image, unsigned int n, CUjit_option *options,
                     void **values, CUmodule *handle) {
    if (!image || !handle || (n && (!options || !values))) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = vgd_capture_unsafe(context);
    if (result) return result;
    size_t bytes;
    VgModule *inner = NULL;
    result = image_length(image, &bytes);
    if (!result) {
        vgd_pause();
        if (vg_module_load(vgd.device, image, bytes, &inner))
            result = vgd_status(CUDA_ERROR_INVALID_PTX);
    }
    const char *text = result ? vgpuLastMessage() : "";
    write_log(n, options, values, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
              text);
    write_log(n, options, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
    if (result) return result;

    CUmodule module = calloc(1, sizeof *module);
    if (!module || !vgd_object_add(module, VGD_MODULE, context)) {
        free(module);
        vg_module_unload(inner);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    int n_functions = vg_module_kernel_count(inner);
    module->module = inner;
    module->context = context;
    module->functions = calloc((size_t)n_functions + 1, sizeof *module->functions);
    for (int i = 0; module->functions && i < n_functions; i++) {
        CUfunction function = calloc(1, sizeof *function);
        if (!function || !vgd_object_add(function, VGD_FUNCTION, context)) {
            free(function);
            break;
        }
        function->id = vgd_next_id();
        function->kernel = vg_module_kernel_at(inner, i);
        function->info = vg_kernel_info(function->kernel);
        function->module = module;
        function->max_dynamic = DYNAMIC_DEFAULT - (int)function->info->static_shared;
        if (function->max_dynamic < 0) function->max_dynamic = 0;
        function->carveout = -1;
        module->functions[module->n_functions++] = function;
    }
    if (module->n_functions < n_functions) {
        vgd_module_free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = module;
    return CUDA_SUCCESS;
}

void vgd_module_free(CUmodule module) {
    for (int i = 0; i < module->n_functions; i++) {
        vgd_object_remove(module->functions[i]);
        free(module->functions[i]);
    }
    if (module->library) {
        vgd_object_remove(module->library);
        free(module->library);
    }
    vg_module_unload(module->module);
    vgd_object_remove(module);
    free(module->functions);
    free(module);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n,
                            CUjit_option *options, void **values) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    return vgd_leave(load(context, image, n, options, values, module));
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

CUresult cuModuleLoad(CUmodule *module, const char *path) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!path) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    Arena *arena = arena_create();
    char *bytes;
    size_t n;
    if (file_read(path, arena, &bytes, &n)) result = vgd_status(CUDA_ERROR_FILE_NOT_FOUND);
    else result = load(context, bytes, 0, NULL, NULL, module);
    arena_destroy(arena);
    return vgd_leave(result);
}

static CUresult unload(CUmodule module) {
    CUresult result = vgd_capture_unsafe(module->context);
    if (result) return result;
    vgd_wait_context(module->context); // its kernels may be pending
    vgd_pause();
    if (!vgd_object_is(module, VGD_MODULE)) return CUDA_ERROR_INVALID_HANDLE; // by someone else
    vgd_module_free(module);
    return CUDA_SUCCESS;
}

static CUresult enter_module(CUmodule module) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(module, VGD_MODULE)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not a module, or no longer one",
                              (void *)module));
}

CUresult cuModuleUnload(CUmodule module) {
    CUresult result = enter_module(module);
    return result ? result : vgd_leave(unload(module));
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

/* What is in a module -------------------------------------------------------------------------- */

static CUresult get_function(CUmodule module, const char *name, CUfunction *function) {
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < module->n_functions; i++) {
        if (strcmp(module->functions[i]->info->name, name)) continue;
        *function = module->functions[i];
        return CUDA_SUCCESS;
    }
    const char *nearest = module->n_functions ? module->functions[0]->info->name : NULL;
    return vgd_fail(CUDA_ERROR_NOT_FOUND, "the module has no kernel '%s'; it has %d%s%s%s\n"
                    "  hint: names of C++ kernels are mangled unless extern \"C\"", name,
                    module->n_functions, nearest ? ", the first is '" : "", nearest ? nearest : "",
                    nearest ? "'" : "");
}

static CUresult get_global(CUmodule module, const char *name, CUdeviceptr *at, size_t *bytes) {
    uint64_t address;
    size_t n;
    if (!name) return CUDA_ERROR_INVALID_VALUE;
    if (!vg_module_global(module->module, name, &address, &n))
        return vgd_fail(CUDA_ERROR_NOT_FOUND, "the module has no variable '%s'", name);
    if (at) *at = address;
    if (bytes) *bytes = n;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    CUresult result = enter_module(module);
    return result ? result : vgd_leave(get_function(module, name, function));
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module) {
    CUresult result = enter_module(module);
    if (result) return result;
    if (count) *count = (unsigned int)module->n_functions;
    return vgd_leave(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int n, CUmodule module) {
    CUresult result = enter_module(module);
    if (result) return result;
    if (!functions) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < n && i < (unsigned int)module->n_functions; i++)
        functions[i] = module->functions[i];
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module, const char *name) {
    CUresult result = enter_module(module);
    return result ? result : vgd_leave(get_global(module, name, at, bytes));
}

/* Libraries ------------------------------------------------------------------------------------ */

// Bound to the current context, where the real driver binds lazily to each that uses it.
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
                           void **values,
                           unsigned int n, CUlibraryOption *library_options, void **library_values,
                           unsigned int n_library) {
    (void)library_options, (void)library_values, (void)n_library;
    CUcontext context;
    CUmodule module;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    if (!library) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    CUlibrary made = calloc(1, sizeof *made);
    if (!made || !vgd_object_add(made, VGD_LIBRARY, context)) result = CUDA_ERROR_OUT_OF_MEMORY;
    else result = load(context, code, n, options, values, &module);
    if (result) {
        vgd_object_remove(made);
        free(made);
        return vgd_leave(result);
    }
    made->module = module;
    module->library = made;
    *library = made;
    return vgd_leave(CUDA_SUCCESS);
}

static CUresult enter_library(CUlibrary library) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result || vgd_object_is(library, VGD_LIBRARY)) return result;
    return vgd_leave(vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not a library, or no longer one",
                              (void *)library));
}

CUresult cuLibraryUnload(CUlibrary library) {
    CUresult result = enter_library(library);
    return result ? result : vgd_leave(unload(library->module));
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    CUresult result = enter_library(library);
    if (result) return result;
    return vgd_leave(get_function(library->module, name, (CUfunction *)kernel));
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library) {
    CUresult result = enter_library(library);
    if (result) return result;
    if (count) *count = (unsigned int)library->module->n_functions;
    return vgd_leave(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int n, CUlibrary library) {
    CUresult result = enter_library(library);
    if (result) return result;
    if (!kernels) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < n && i < (unsigned int)library->module->n_functions; i++)
        kernels[i] = (CUkernel)library->module->functions[i];
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
    CUresult result = enter_library(library);
    if (result) return result;
    if (module) *module = library->module;
    return vgd_leave(module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuLibraryGetGlobal(CUdeviceptr *at, size_t *bytes, CUlibrary library, const char *name) {
    CUresult result = enter_library(library);
    return result ? result : vgd_leave(get_global(library->module, name, at, bytes));
}

/* Functions ------------------------------------------------------------------------------------ */

CUresult vgd_function(CUfunction handle, CUfunction *function) {
    *function = handle;
    if (vgd_object_is(handle, VGD_FUNCTION)) return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_HANDLE, "%p is not a function, or its module was unloaded",
                    (void *)handle);
}

CUresult vgd_work_loaded(const VgdWork *work) {
    if (work->kind != VGD_KERNEL) return CUDA_SUCCESS;
    CUfunction function = work->launch.function;
    if (vgd_object_is(function, VGD_FUNCTION) && function->id == work->launch.id)
        return CUDA_SUCCESS;
    return vgd_fail(CUDA_ERROR_INVALID_HANDLE, "the module of a kernel was unloaded");
}

static CUresult enter_function(CUfunction function) {
    CUcontext context;
    CUresult result = vgd_enter(&context);
    if (result) return result;
    result = vgd_function(function, &function);
    return result ? vgd_leave(result) : CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    CUresult result = enter_function((CUfunction)kernel);
    if (result) return result;
    if (function) *function = (CUfunction)kernel;
    return vgd_leave(function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuKernelGetLibrary(CUlibrary *library, CUkernel kernel) {
    CUresult result = enter_function((CUfunction)kernel);
    if (result) return result;
    if (!library) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *library = ((CUfunction)kernel)->module->library;
    return vgd_leave(*library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

CUresult cuFuncGetName(const char **name, CUfunction function) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (name) *name = function->info->name;
    return vgd_leave(name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    return cuFuncGetName(name, (CUfunction)kernel);
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (module) *module = function->module;
    return vgd_leave(module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t i, size_t *offset, size_t *bytes) {
    CUresult result = enter_function(function);
    if (result) return result;
    const VgKernelInfo *info = function->info;
    if (!offset || i >= info->n_params) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    *offset = info->params[i].offset;
    if (bytes) *bytes = info->params[i].bytes;
    return vgd_leave(CUDA_SUCCESS);
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t i, size_t *offset, size_t *bytes) {
    return cuFuncGetParamInfo((CUfunction)kernel, i, offset, bytes);
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (state) *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return vgd_leave(state ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult cuFuncLoad(CUfunction function) {
    CUresult result = enter_function(function);
    return result ? result : vgd_leave(CUDA_SUCCESS);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    (void)config; // a preference only
    return cuFuncLoad(function);
}

CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
    (void)device;
    return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

/* Function attributes -------------------------------------------------------------------------- */

static CUresult get_attribute(CUfunction function, CUfunction_attribute which, int *value) {
    const VgKernelInfo *info = function->info;
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = (int)info->max_threads; break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)info->static_shared; break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = (int)info->local_bytes; break;
    // Registers are given by ptxas; the interpreter's slots are an estimate from above.
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = info->slots < 255 ? info->slots : 255; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION: *value = info->ptx_version; break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = vgd.cc; break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->max_dynamic; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = function->carveout; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: *value = 0; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: *value = (int)info->cluster[0]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: *value = (int)info->cluster[1]; break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: *value = (int)info->cluster[2]; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function->non_portable;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: *value = function->policy; break;
    default: return vgd_fail(CUDA_ERROR_INVALID_VALUE, "function attribute %d: not one", which);
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    CUresult result = enter_function(function);
    if (result) return result;
    if (!value) return vgd_leave(CUDA_ERROR_INVALID_VALUE);
    return vgd_leave(get_attribute(function, which, value));
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel,
                              CUdevice device) {
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncGetAttribute(value, which, (CUfunction)kernel);
}

static CUresult set_dynamic(CUfunction function, int value) {
    int used = (int)function->info->static_shared;
    int optin = vgd_device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    if (value < 0 || value > optin - used)
        return vgd_fail(CUDA_ERROR_INVALID_VALUE, "%s: %d bytes of dynamic shared memory asked for;"
                        " a block has at most %d, of which %d are declared", function->info->name,
                        value, optin, used);
    function->max_dynamic = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    CUresult result = enter_function(function);
    if (result) return result;
    switch ((int)which) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        result = set_dynamic(function, value);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < -1 || value > 100) result = CUDA_ERROR_INVALID_VALUE;
        else function->carveout = value;
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: function->non_portable = value; break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: function->policy = value; break;
    default:
        result = vgd_fail(CUDA_ERROR_INVALID_VALUE, "function attribute %d cannot be set", which);
    }
    return vgd_leave(result);
}

CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel,
                              CUdevice device) {
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    return cuFuncSetAttribute((CUfunction)kernel, which, value);
}
