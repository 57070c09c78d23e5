// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the decoder; not for those that use it (code.h).
//
// References, until slots are allotted: kind in the top two bits, number below.
#ifndef MOEC_VGPU_DECODE_H
#define MOEC_VGPU_DECODE_H

#include "runtime/vgpu/module.h"

#define REF_VALUE 0x80000000u // virtual register or temporary
#define REF_CONST 0xC0000000u
#define REF_AREA 0x40000000u  // byte of the parameter area, times 32 lanes
#define REF_KIND 0xC0000000u  // 0: predicate word, already its offset

typedef struct VgRefList { uint32_t *refs, n_dst, n_src; } VgRefList;
typedef struct VgEmit {
    VgInstr i;
    const PtxInstr *from;
    VgRefList list, reads;
    bool terminator;
    bool falls;              // of a terminator: may go on to the next block
    int32_t label;           // branch target: PTX instruction, -1
    const PtxTable *table;   // of brx.idx
    uint32_t block;
} VgEmit;
typedef struct VgFlow {      // a block while it is being found
    uint32_t first, n, order;
    uint32_t *to, n_to;
    int32_t join;            // block, or n_blocks for the exit, -1 unknown
    uint64_t *live_in, *live_out, *uses, *defs;
} VgFlow;
typedef struct VgAfter { VgHandler run; uint32_t to, from; } VgAfter;
typedef struct VgValue {
    uint32_t bits, slot;
    uint32_t first, last;
    const char *name, *origin; // origin: where it holds a copy of what was never written, of what
} VgValue;

struct VgDecoder {
    VgModule *module;
    const VgIsa *isa;
    Arena *arena;           // of the module
    Arena *scratch;         // of this function
    PtxFunc *ptx;
    VgFunc *func;
    const PtxInstr *p;      // being decoded
    uint64_t taken;         // its consumed modifiers
    VgEmit *emits;
    uint32_t n_emits, cap_emits;
    VgValue *values;
    uint32_t n_values, cap_values;
    VgConst *consts;
    uint32_t n_consts, cap_consts;
    uint32_t n_preds;       // words in use, word 0 included
    uint32_t area_bytes;    // per lane
    uint32_t *at_label;     // emitted index of each PTX instruction, and of the end
    bool *leader;           // PTX instructions that begin a block
    VgFlow *blocks;
    uint32_t n_blocks;
    VgAfter after[16];
    uint32_t n_after;
};

Status vg_decode_function(VgModule *module, PtxFunc *ptx);          // fills its VgFunc
Status vg_decode_blocks(VgDecoder *d);                              // decode_cfg.c
Status vg_decode_slots(VgDecoder *d);                               // decode_slots.c
// live_in: values that some path from the start reads before it writes them (decode_defined.c).
void vg_decode_defined(VgDecoder *d, const uint64_t *live_in);

#endif
