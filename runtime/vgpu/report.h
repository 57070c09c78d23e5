// SPDX-License-Identifier: Apache-2.0
// What the virtual GPU says when it stops a kernel: the kinds of fault, the raw record that checks
// fill, and the text made of it.
//
// A check knows addresses, agents and instruction numbers ("sites"), nothing of PTX; it fills a
// VgRecord and returns the fault. Who runs the kernel turns sites into places (VgPlace: kernel, PTX
// line, template line with its chain of inlined calls) and has the text composed here, so that
// every report has one form:
//   uninitialised read: 4 bytes at shared+0x120
//     kernel softmax, block (3,0,0), warp 1, lane 5, thread (37,0,0)
//     softmax.cu:41 (inlined at softmax.cu:77), PTX line 212: ld.shared.f32 %f9, [%r4];
//     ...what is known of the word, the allocation, the other access
//     hint: ...
#ifndef MOEC_VGPU_REPORT_H
#define MOEC_VGPU_REPORT_H

#include "runtime/base/base.h"

// X(name, title). The title opens the report.
#define VG_FAULT_TABLE(X)                                                                          \
    X(VG_OK, "no fault")                                                                           \
    X(VG_ILLEGAL_ADDRESS, "illegal address")                                                       \
    X(VG_USE_AFTER_FREE, "use after free")                                                         \
    X(VG_READ_ONLY, "write to read-only memory")                                                   \
    X(VG_MISALIGNED, "misaligned access")                                                          \
    X(VG_UNINITIALISED, "uninitialised read")                                                      \
    X(VG_RACE, "data race")                                                                        \
    X(VG_SCOPE, "scope too narrow")                                                                \
    X(VG_ILLEGAL_INSTRUCTION, "illegal instruction")                                               \
    X(VG_DIVERGED, "diverged lanes")                                                               \
    X(VG_BARRIER, "barrier misuse")                                                                \
    X(VG_TRAP, "trap")                                                                             \
    X(VG_ASSERT, "assertion failed")                                                               \
    X(VG_DEADLOCK, "deadlock")                                                                     \
    X(VG_NO_MEMORY, "out of host memory")                                                          \
    X(VG_LAUNCH, "launch does not fit")
#define X(name, title) name,
typedef enum VgFault { VG_FAULT_TABLE(X) } VgFault;
#undef X
const char *vg_fault_title(VgFault fault);

typedef enum VgAccess { VG_READ, VG_WRITE, VG_ATOMIC } VgAccess;

// The other party of a race.
typedef struct VgOther {
    bool known;
    VgAccess access;
    uint32_t cta, warp;       // linear block of the grid, warp of the block
    uint32_t site;            // VG_NO_SITE: not recorded
    bool same_launch;
    bool flying;              // an asynchronous operation's that nobody has waited for
} VgOther;
#define VG_NO_SITE UINT32_MAX

typedef struct VgRecord {
    VgFault fault;
    VgAccess access;
    const char *space;        // "global", "shared", ...
    uint64_t address;         // as the program gave it, offset included
    uint32_t bytes;           // of one lane's access
    uint32_t cta, warp, lane; // linear block of the grid, warp of the block, lane
    uint32_t site;
    VgOther other;
    char detail[360];         // the allocation and the distance to it, the edge missing, ...
    char hint[200];
} VgRecord;

// Where an instruction is. Strings live as long as the kernel.
typedef struct VgPlace {
    uint32_t ptx_line;        // 0: unknown
    const char *ptx;          // text of the instruction; may be NULL
    const char *file;         // template's file by .loc; NULL: none
    uint32_t line;
    int n_inlined;            // the call chain outward
    struct { const char *file; uint32_t line; } inlined[8];
} VgPlace;

typedef struct VgScene {      // who and where, for the head of a report
    const char *kernel;
    uint32_t grid[3], block[3];
    // Fills `place` of a site; false: unknown.
    bool (*locate)(const void *kernel, uint32_t site, VgPlace *place);
    const void *locate_data;
} VgScene;

// The text of a record.
void vg_report_text(Text *text, const VgRecord *record, const VgScene *scene);
// "softmax.cu:41 (inlined at softmax.cu:77), PTX line 212: ld.shared.f32 %f9, [%r4];"
void vg_report_place(Text *text, const VgPlace *place);

// Reports of a device: counts by kind and the last text. Threads may add at the same time.
typedef struct VgReports VgReports;
VgReports *vg_reports_create(void);                     // NULL when out of memory
void vg_reports_destroy(VgReports *reports);
void vg_reports_add(VgReports *reports, VgFault fault, const char *text);
int vg_reports_count(VgReports *reports, VgFault fault); // VG_OK: all
const char *vg_reports_last(VgReports *reports); // "" when there is none; lives until the next add
void vg_reports_clear(VgReports *reports);

#endif
