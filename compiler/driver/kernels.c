// SPDX-License-Identifier: Apache-2.0
// `moec kernels`: the kernels of a plan for other people's programs, and for a look at what the
// compiler made of them. In DIR:
//
// (of every stage of a pipeline, in DIR/stage-N)
//
//   ENTRY.cu, ENTRY.ptx, ENTRY.cubin   source (compiles alone), code
//   report.txt, report.json            registers, shared memory, spills, cost of compilation
//   kernels.h                          launch shapes, parameters in order, a launch helper for each
//
// Needs NVRTC, but neither a GPU nor its driver.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/driver/plan_args.h"
#include "runtime/jit/jit.h"

typedef struct Kernels {
    const Plan *plan;
    const char *arch, *dir;
    Arena *arena;
    JitImage *images;
    CubinKernel *found; // per kernel
    int64_t **extents;  // per kernel and parameter: bytes behind its address, 0: never launched
} Kernels;

static const char *type_of(const PlanArg *arg) {
    static const char *const types[N_DTYPES] = {
#define X(name, text, c_type, bytes) c_type,
        PLAN_DTYPES(X)
#undef X
    };
    return types[arg->dtype];
}

static Status write_file(const Kernels *k, const char *name, const char *suffix, const char *bytes,
                         size_t n) {
    return file_write_atomic(arena_printf(k->arena, "%s/%s%s", k->dir, name, suffix), bytes, n);
}

// What a launch hands over: the buffer, or the piece of it that one trip of a repeat works on. Kernels
// are made for their sizes, so the least of all launches is what is needed.
static void find_extents(Kernels *k) {
    const Plan *plan = k->plan;
    k->extents = ARENA_ARRAY(k->arena, int64_t *, plan->n_kernels);
    for (uint32_t i = 0; i < plan->n_kernels; i++)
        k->extents[i] = ARENA_ARRAY(k->arena, int64_t, plan->kernels[i].n_args);
    for (uint32_t p = 0; p < plan->n_programs; p++) {
        const PlanProgram *program = &plan->programs[p];
        for (uint32_t i = 0; i < program->n_instrs; i++) {
            const PlanInstr *instr = &program->instrs[i];
            for (uint32_t a = 0; a < instr->n_operands && instr->op == PLAN_launch; a++) {
                const PlanOperand *operand = &program->operands[instr->operands + a];
                int64_t bytes = operand->step ? operand->step
                                              : program->buffers[operand->buffer].bytes;
                int64_t *least = &k->extents[instr->kernel][a];
                if (!*least || bytes < *least) *least = bytes;
            }
        }
    }
}

/* Report --------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_ms(const Kernels *k) {
    uint32_t n = k->plan->n_kernels;
    double *ms = ARENA_ARRAY(k->arena, double, n + 1);
    for (uint32_t i = 0; i < n; i++) ms[i] = k->images[k->plan->kernels[i].source].ms;
    qsort(ms, n, sizeof *ms, by_value);
    return n ? (ms[(n - 1) / 2] + ms[n / 2]) / 2 : 0;
}

static void print_report(const Kernels *k, Text *out) {
    int major = 0, minor = 0, spilling = 0, most = 0;
    if (jit_cuda_compiler(&major, &minor) != OK) major = minor = 0; // it has just compiled them
    text_printf(out, "%u kernels of %s for %s, NVRTC %d.%d\n\n", k->plan->n_kernels, k->plan->model,
                k->arch, major, minor);
    text_printf(out, "%-32s %9s %7s %9s %9s %7s %9s %7s\n", "entry", "blocks", "threads",
                "registers", "shared", "local", "spilled", "ms");
    for (uint32_t i = 0; i < k->plan->n_kernels; i++) {
        const PlanKernel *kernel = &k->plan->kernels[i];
        const CubinKernel *found = &k->found[i];
        int spilled = found->spill_stores + found->spill_loads;
        text_printf(out, "%-32s %9lld %7d %9d %9d %7d %9d %7.1f\n", kernel->entry,
                    (long long)kernel->tiles, kernel->threads, found->registers,
                    found->shared + kernel->shared, found->frame, spilled,
                    k->images[kernel->source].ms);
        spilling += spilled > 0;
        most = (int)max_i64(most, found->registers);
    }
    text_printf(out,
                "\n%d spill; at most %d registers; half compile within %.1f ms; parameters lie as "
                "launches pass them\n",
                spilling, most, median_ms(k));
}

static json_t *kernel_record(const Kernels *k, uint32_t i) {
    const PlanKernel *kernel = &k->plan->kernels[i];
    const CubinKernel *found = &k->found[i];
    json_t *args = json_array();
    for (uint32_t a = 0; args && a < kernel->n_args; a++)
        json_array_append_new(
            args, json_pack("{s:s, s:s, s:b, s:i, s:i, s:I}", "name", kernel->args[a].name, "type",
                            type_of(&kernel->args[a]), "const", kernel->args[a].is_const, "offset",
                            (int)found->params[a].offset, "bytes", (int)found->params[a].bytes,
                            "extent", (json_int_t)k->extents[i][a]));
    return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:o}",
                     "entry", kernel->entry, "family", kernel->family, "blocks",
                     (json_int_t)kernel->tiles, "threads", kernel->threads, "dynamic shared",
                     kernel->shared, "static shared", found->shared, "registers", found->registers,
                     "local", found->frame, "spill stores", found->spill_stores, "spill loads",
                     found->spill_loads, "ms", k->images[kernel->source].ms, "flops", kernel->flops,
                     "bytes", kernel->bytes, "parameters", args);
}

static Status write_json(const Kernels *k) {
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < k->plan->n_kernels; i++)
        if (json_array_append_new(list, kernel_record(k, i))) {
            json_decref(list);
            list = NULL;
        }
    json_t *report = list ? json_pack("{s:s, s:s, s:f, s:o}", "model", k->plan->model, "arch",
                                      k->arch, "median ms", median_ms(k), "kernels", list)
                          : NULL;
    char *text = report ? json_dumps(report, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    Status status = text ? write_file(k, "report.json", "", text, strlen(text))
                         : status_fail(ERR_MEMORY, "no memory for a report");
    memory_free(text);
    json_decref(report);
    return status;
}

/* Header --------------------------------------------------------------------------------------- */

static const char header_begin[] =
    "#ifndef MOEC_KERNELS_H\n#define MOEC_KERNELS_H\n\n#include <cuda.h>\n#include <stddef.h>\n\n"
    "typedef struct MoecKernel {\n"
    "    const char *entry, *file, *family;\n"
    "    unsigned blocks, threads, shared, n_parameters; // shared: dynamic bytes\n"
    "} MoecKernel;\n\n"
    "// The function of a kernel in its module, ready for its dynamic shared memory.\n"
    "static inline CUresult moec_kernel_function(const MoecKernel *kernel, CUmodule module,\n"
    "                                            CUfunction *function) {\n"
    "    CUresult result = cuModuleGetFunction(function, module, kernel->entry);\n"
    "    if (result == CUDA_SUCCESS && kernel->shared > 0)\n"
    "        result = cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,\n"
    "                                    (int)kernel->shared);\n"
    "    return result;\n"
    "}\n\n";

static void print_helper(const PlanKernel *kernel, const int64_t *extents, Text *out) {
    text_printf(out, "// %s\n", kernel->family);
    for (uint32_t a = 0; a < kernel->n_args; a++)
        text_printf(out, "//   %s%s %s[%lld]\n", kernel->args[a].is_const ? "const " : "",
                    type_of(&kernel->args[a]), kernel->args[a].name,
                    (long long)(extents[a] / dtype_bytes(kernel->args[a].dtype)));
    text_printf(out, "static inline CUresult launch_%s(CUfunction function, CUstream stream",
                kernel->entry);
    for (uint32_t a = 0; a < kernel->n_args; a++)
        text_printf(out, ",\n    CUdeviceptr %s", kernel->args[a].name);
    text_add(out, ") {\n    void *parameters[] = { ");
    for (uint32_t a = 0; a < kernel->n_args; a++)
        text_printf(out, "&%s%s", kernel->args[a].name, a + 1 < kernel->n_args ? ", " : "");
    text_printf(out, " };\n    return cuLaunchKernel(function, %lld, 1, 1, %d, 1, 1, %d, stream, "
                     "parameters, NULL);\n}\n\n",
                (long long)kernel->tiles, kernel->threads, kernel->shared);
}

static Status write_header(const Kernels *k) {
    const Plan *plan = k->plan;
    Text text = { 0 };
    text_printf(&text,
                "// Kernels of %s for %s, written by moec %s. Every parameter is an address on the GPU,\n"
                "// of an array as in the comment, aligned to %d bytes; bf16 is the upper half of a float.\n",
                plan->model, k->arch, MOEC_VERSION, PLAN_GRAIN);
    text_add(&text, header_begin);
    text_add(&text, "static const MoecKernel moec_kernels[] = {\n");
    for (uint32_t i = 0; i < plan->n_kernels; i++) {
        const PlanKernel *kernel = &plan->kernels[i];
        text_printf(&text, "    { \"%s\", \"%s.cubin\", \"%s\", %lld, %d, %d, %u },\n",
                    kernel->entry, kernel->entry, kernel->family, (long long)kernel->tiles,
                    kernel->threads, kernel->shared, kernel->n_args);
    }
    text_printf(&text, "};\nenum { MOEC_N_KERNELS = %u };\n\n", plan->n_kernels);
    for (uint32_t i = 0; i < plan->n_kernels; i++) 
        print_helper(&plan->kernels[i], k->extents[i], &text);
    text_add(&text, "#endif\n");
    Status status = write_file(k, "kernels.h", "", text.at, text.bytes);
    text_finish(&text);
    return status;
}

/* The command ---------------------------------------------------------------------------------- */

static Status write_code(Kernels *k) {
    for (uint32_t i = 0; i < k->plan->n_kernels; i++) {
        const PlanKernel *kernel = &k->plan->kernels[i];
        const JitImage *image = &k->images[kernel->source];
        const char *source = jit_cuda_program(k->plan, kernel->source, k->arena);
        TRY(write_file(k, kernel->entry, ".cu", source, strlen(source)));
        TRY(write_file(k, kernel->entry, ".ptx", image->ptx, image->n_ptx));
        TRY(write_file(k, kernel->entry, ".cubin", image->cubin, image->n_cubin));
        TRY(cubin_read(image->cubin, image->n_cubin, kernel->entry, &k->found[i]));
        cubin_read_log(image->log, kernel->entry, &k->found[i]);
    }
    return OK;
}

static Status write_kernels(Kernels *k) {
    k->found = ARENA_ARRAY(k->arena, CubinKernel, k->plan->n_kernels);
    TRY(file_make_dirs(k->dir)); // first: compiling takes long
    TRY(jit_cuda(k->plan, k->arch, JIT_PTX | JIT_CUBIN, NULL, NULL, NULL, k->arena, &k->images));
    find_extents(k);
    TRY(write_code(k));
    TRY(write_header(k));
    TRY(write_json(k));
    Text report = { 0 };
    print_report(k, &report);
    Status status = write_file(k, "report.txt", "", report.at, report.bytes);
    fputs(text_cstr(&report), stdout);
    text_finish(&report);
    return status;
}

// Stages of a pipeline have a folder each in DIR.
static int lower_and_write(PlanArgs *args, Arena *arena) {
    StagePlans stages;
    int result = plan_args_lower(args, arena, &stages);
    if (result) return result;
    int32_t pp = stages.layout.pp;
    const char *out = args->options->kernels_out;
    Status status = OK;
    for (int32_t stage = 0; status == OK && stage < pp; stage++) {
        Kernels kernels = { .plan = stages.plans[stage], .arch = args->target + strlen("cuda:"),
                            .dir = pp > 1 ? arena_printf(arena, "%s/stage-%d", out, stage) : out, .arena = arena };
        status = write_kernels(&kernels);
    }
    stage_plans_destroy(&stages);
    return status == OK ? 0 : driver_fail(status);
}

static Status read_args(PlanArgs *args, Options *options, int argc, char **argv) {
    TRY(plan_args_read(args, FOR_KERNELS, options, argc, argv));
    if (!args->target)
        return status_fail(ERR_ARGUMENT, "no architecture given\n  hint: --arch sm_90a");
    if (!options->kernels_out[0])
        return status_fail(ERR_ARGUMENT, "no place for the kernels\n  hint: -o FOLDER");
    return OK;
}

int cmd_kernels(int argc, char **argv) {
    Options *options = options_create();
    PlanArgs args;
    Status status = read_args(&args, options, argc, argv);
    int result = status == OK ? lower_and_write(&args, options->arena) : driver_fail(status);
    options_destroy(options);
    return result;
}
