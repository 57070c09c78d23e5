// SPDX-License-Identifier: Apache-2.0
// The driver's one state: its lock, how calls enter and leave, messages, findings, and the table of
// live handles. A handle is the address of its object; the table tells a live one from a destroyed
// or a wild one before anything is read through it.
#include <stdio.h>
#include <stdlib.h>

#include "runtime/vgpu/driver.h"

VgdDriver vgd = { .lock = PTHREAD_MUTEX_INITIALIZER };
_Thread_local bool vgd_in_callback;

static _Thread_local char message[1024];

/* Calls ---------------------------------------------------------------------------------------- */

static CUresult enter(void) {
    message[0] = 0;
    if (vgd_in_callback)
        return vgd_fail(CUDA_ERROR_NOT_PERMITTED, "a host function may not call the driver\n"
                        "  hint: set a flag there and make the call in another thread");
    pthread_mutex_lock(&vgd.lock);
    if (vgd.initialised) return CUDA_SUCCESS;
    pthread_mutex_unlock(&vgd.lock);
    return vgd_fail(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called");
}

CUresult vgd_enter_device(CUdevice device) {
    CUresult result = enter();
    if (result || device == 0) return result;
    pthread_mutex_unlock(&vgd.lock);
    return vgd_fail(CUDA_ERROR_INVALID_DEVICE, "device %d: there is one device, 0", device);
}

CUresult vgd_enter(CUcontext *context) {
    CUresult result = enter();
    if (result) return result;
    *context = vgd_context_current();
    if (!*context)
        result = vgd_fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current in this thread\n"
                          "  hint: cuDevicePrimaryCtxRetain and cuCtxSetCurrent, in each thread");
    else if ((*context)->sticky)
        result = vgd_fail((*context)->sticky, "an earlier kernel of this context failed; the error"
                          " stays until it is destroyed or reset\n  hint: vgpuLastReport()");
    if (result) pthread_mutex_unlock(&vgd.lock);
    return result;
}

CUresult vgd_leave(CUresult result) {
    pthread_mutex_unlock(&vgd.lock);
    return result;
}

CUresult vgd_fail(CUresult result, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return result;
}

CUresult vgd_status(CUresult result) {
    return vgd_fail(result, "%s", status_message());
}

const char *vgpuLastMessage(void) {
    return message;
}

uint64_t vgd_next_id(void) {
    return ++vgd.next_id;
}

/* Findings ------------------------------------------------------------------------------------- */

void vgd_report(VgFault fault, const char *text) {
    vg_reports_add(vgd.reports, fault, text);
    if (!vgd.quiet) fprintf(stderr, "moec-vgpu: %s\n", text);
}

const char *vgpuLastReport(void) {
    return vgd.reports ? vg_reports_last(vgd.reports) : "";
}

void vgpuPrintFaults(int print) {
    pthread_mutex_lock(&vgd.lock);
    vgd.untold = !print;
    pthread_mutex_unlock(&vgd.lock);
}

int vgpuReportCount(void) {
    return vgd.reports ? vg_reports_count(vgd.reports, VG_OK) : 0;
}

void vgpuClearReports(void) {
    if (vgd.reports) vg_reports_clear(vgd.reports);
}

/* Handles: open addressing, linear probes, entries moved back on removal ----------------------- */

typedef struct Entry { const void *object; CUcontext owner; VgdKind kind; } Entry;
static struct { Entry *at; uint32_t cap, n; } table;

static uint32_t slot_of(const void *object) {
    return (uint32_t)(((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15u >> 32) & (table.cap - 1);
}

static Entry *find(const void *object) {
    if (!table.cap || !object) return NULL;
    for (uint32_t i = slot_of(object); table.at[i].object; i = (i + 1) & (table.cap - 1))
        if (table.at[i].object == object) return &table.at[i];
    return NULL;
}

static bool grow(void) {
    uint32_t old_cap = table.cap;
    Entry *old = table.at;
    Entry *at = calloc(old_cap ? old_cap * 2 : 64, sizeof *at);
    if (!at) return false;
    table.at = at;
    table.cap = old_cap ? old_cap * 2 : 64;
    for (uint32_t i = 0; i < old_cap; i++) {
        if (!old[i].object) continue;
        uint32_t to = slot_of(old[i].object);
        while (at[to].object) to = (to + 1) & (table.cap - 1);
        at[to] = old[i];
    }
    free(old);
    return true;
}

bool vgd_object_add(const void *object, VgdKind kind, CUcontext owner) {
    if (table.n * 2 >= table.cap && !grow()) return false;
    uint32_t i = slot_of(object);
    while (table.at[i].object) i = (i + 1) & (table.cap - 1);
    table.at[i] = (Entry){ object, owner, kind };
    table.n++;
    return true;
}

void vgd_object_remove(const void *object) {
    Entry *entry = find(object);
    if (!entry) return;
    uint32_t mask = table.cap - 1, hole = (uint32_t)(entry - table.at);
    for (uint32_t i = (hole + 1) & mask; table.at[i].object; i = (i + 1) & mask) {
        uint32_t home = slot_of(table.at[i].object);
        if (((i - home) & mask) < ((i - hole) & mask)) continue; // it would move before its home
        table.at[hole] = table.at[i];
        hole = i;
    }
    table.at[hole] = (Entry){ 0 };
    table.n--;
}

bool vgd_object_is(const void *object, VgdKind kind) {
    Entry *entry = find(object);
    return entry && entry->kind == kind;
}

CUcontext vgd_object_owner(const void *object) {
    Entry *entry = find(object);
    return entry ? entry->owner : NULL;
}

const void *vgd_object_of(CUcontext owner, VgdKind kind) {
    for (uint32_t i = 0; i < table.cap; i++)
        if (table.at[i].object && table.at[i].owner == owner && table.at[i].kind == kind)
            return table.at[i].object;
    return NULL;
}
