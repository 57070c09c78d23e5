// SPDX-License-Identifier: Apache-2.0
// libFuzzer target for PTX: text to decoded kernels, and those that are short are run by one block.
// Build with -DMOEC_FUZZ=ON (clang), run
//     fuzz_ptx -max_len=65536 -timeout=20 tests/fuzz/corpus/ptx
// Half of the mutations are of tokens, taken from the text itself: bytes alone seldom get past the
// lexer. Whatever the text says, it is refused, or loads; what runs ends with or without a fault.
#include <stdlib.h>

#include "runtime/vgpu/core.h"
#include "runtime/vgpu/memory.h"
#include "runtime/vgpu/ptx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);

enum { MOST_TOKENS = 1 << 16, BUFFER = 4096, MOST_PARAMS = 4096 };

// A branch back may loop for ever, and so may a call.
static bool ends(const PtxModule *module) {
    for (uint32_t f = 0; f < module->n_funcs; f++)
        for (uint32_t i = 0; i < module->funcs[f]->n_instrs; i++) {
            const PtxInstr *instr = &module->funcs[f]->instrs[i];
            if (!strcmp(instr->root, "call") || !strcmp(instr->root, "nanosleep")) return false;
            for (uint32_t o = 0; o < instr->n_operands; o++)
                if (instr->operands[o].label >= 0 && instr->operands[o].label <= (int32_t)i)
                    return false;
            if (!strcmp(instr->root, "brx")) return false;
        }
    return true;
}

static void run(VgDevice *device, VgKernel *kernel) {
    const VgKernelInfo *info = vg_kernel_info(kernel);
    uint64_t buffer, params[MOST_PARAMS / 8];
    if (info->param_bytes > MOST_PARAMS || info->local_bytes > 1 << 16) return;
    if (vg_mem_alloc(vg_device_memory(device), VG_GLOBAL, BUFFER, 16, "buffer", &buffer) != OK)
        return;
    for (int i = 0; i < COUNT_OF(params); i++) params[i] = buffer;
    VgLaunch launch = { .kernel = kernel, .grid = { 1, 1, 1 }, .block = { 64, 1, 1 },
                        .params = params };
    for (int k = 0; k < 3 && info->reqntid[0]; k++) launch.block[k] = info->reqntid[k];
    for (int k = 0; k < 3 && info->cluster[0]; k++)
        launch.grid[k] = launch.cluster[k] = info->cluster[k];
    if ((uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2] <= 8)
        (void)vg_run(device, &launch);
    (void)vg_mem_free(vg_device_memory(device), buffer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static VgDevice *device;
    setenv("MOEC_VGPU_ISA", "v3", 1);
    if (!device && vg_device_create("sm_90a", 1, &device) != OK) abort();
    VgModule *module;
    char *text = malloc(size + !size); // of its own, so that reading past it is seen
    memcpy(text, data, size);
    Arena *arena = arena_create();
    PtxModule *parsed;
    bool runs = ptx_parse(arena, text, size, &parsed) == OK && ends(parsed);
    if (vg_module_load(device, text, size, &module) == OK) {
        for (int k = 0; runs && k < vg_module_kernel_count(module); k++)
            run(device, vg_module_kernel_at(module, k));
        vg_module_unload(module);
    }
    arena_destroy(arena);
    free(text);
    return 0;
}

/* Mutations of tokens -------------------------------------------------------------------------- */

typedef struct Piece { size_t at, n; } Piece;

static size_t pieces_of(const uint8_t *data, size_t size, Piece *pieces) {
    PtxLexer lexer = { (const char *)data, (const char *)data + size, 1 };
    size_t n = 0;
    while (n < MOST_TOKENS) {
        PtxToken token = ptx_next(&lexer);
        if (token.kind == PTX_T_END || token.kind == PTX_T_BAD) break;
        pieces[n++] = (Piece){ (size_t)(token.at - (const char *)data), token.n };
    }
    return n;
}

// Puts `with` in the place of `old`.
static size_t splice(uint8_t *data, size_t size, size_t max, Piece old, const char *with,
                     size_t n) {
    if (size - old.n + n > max) return size;
    memmove(data + old.at + n, data + old.at + old.n, size - old.at - old.n);
    memcpy(data + old.at, with, n);
    return size - old.n + n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    static Piece pieces[MOST_TOKENS];
    static const char *const numbers[] = { "0",  "-1", "1",  "7",  "31", "32", "33", "255", "4096",
                                           "65536", "2147483647", "4294967295", "4294967296",
                                           "0x7fffffffffffffff", "18446744073709551615", "_" };
    srand(seed);
    size_t n = rand() % 2 ? pieces_of(data, size, pieces) : 0;
    if (n < 2) return LLVMFuzzerMutate(data, size, max);
    for (int k = 1 + rand() % 3; k > 0 && n >= 2; k--) {
        Piece old = pieces[(size_t)rand() % n], other = pieces[(size_t)rand() % n];
        char with[256];
        size_t length = other.n < sizeof with ? other.n : sizeof with;
        memcpy(with, data + other.at, length);
        switch (rand() % 6) {
        case 0: length = 0; break;                                  // deleted
        case 1: old.n = 0; break;                                   // another one before it
        case 2:
            length = strlen(strcpy(with, numbers[rand() % COUNT_OF(numbers)]));
            break;
        case 3:                                                     // several, up to the other
            if (other.at > old.at && other.at - old.at < 200) old.n = other.at - old.at;
            length = 0;
            break;
        default: break;
        }
        size = splice(data, size, max, old, with, length);
        n = pieces_of(data, size, pieces);
    }
    return size;
}
