// SPDX-License-Identifier: Apache-2.0
// Texts of reports, and what a device keeps of them: the last text and counts by kind.
#include <pthread.h>
#include <stdlib.h>

#include "runtime/vgpu/report.h"

const char *vg_fault_title(VgFault fault) {
#define X(name, title) title,
    static const char *const titles[] = { VG_FAULT_TABLE(X) };
#undef X
    return (unsigned)fault < (unsigned)COUNT_OF(titles) ? titles[fault] : "unknown fault";
}

static void add_index(Text *text, uint64_t linear, const uint32_t extent[3]) {
    uint32_t x = extent[0] ? extent[0] : 1, y = extent[1] ? extent[1] : 1;
    text_printf(text, "(%llu,%llu,%llu)", (unsigned long long)(linear % x),
                (unsigned long long)(linear / x % y), (unsigned long long)(linear / x / y));
}

void vg_report_place(Text *text, const VgPlace *place) {
    if (place->file) {
        text_printf(text, "%s:%u", place->file, place->line);
        for (int i = 0; i < place->n_inlined; i++)
            text_printf(text, "%s%s:%u", i ? ", at " : " (inlined at ", place->inlined[i].file,
                        place->inlined[i].line);
        text_add(text, place->n_inlined ? "), " : ", ");
    }
    if (place->ptx_line) text_printf(text, "PTX line %u", place->ptx_line);
    if (place->ptx) text_printf(text, "%s%s", place->ptx_line ? ": " : "", place->ptx);
}

static void add_site(Text *text, const VgScene *scene, uint32_t site, const char *lead) {
    VgPlace place = { 0 };
    if (site == VG_NO_SITE || !scene->locate || !scene->locate(scene->locate_data, site, &place))
        return;
    text_add(text, lead);
    vg_report_place(text, &place);
    text_add(text, "\n");
}

static const char *access_name(VgAccess access) {
    return access == VG_READ ? "read" : access == VG_WRITE ? "write" : "atomic";
}

static void add_other(Text *text, const VgOther *other, const VgScene *scene) {
    text_printf(text, "  races with %s %s by block ",
                other->flying                ? "an asynchronous"
                : other->access == VG_ATOMIC ? "an"
                                             : "a",
                access_name(other->access));
    add_index(text, other->cta, scene->grid);
    text_printf(text, ", warp %u%s, not ordered with it\n", other->warp,
                other->same_launch ? "" : " of an earlier launch");
    add_site(text, scene, other->site, "    ");
}

void vg_report_text(Text *text, const VgRecord *record, const VgScene *scene) {
    text_printf(text, "%s", vg_fault_title(record->fault));
    if (record->space) {
        text_printf(text, ": %s of %u byte%s at %s", access_name(record->access), record->bytes,
                    record->bytes == 1 ? "" : "s", record->space);
        text_printf(text, " 0x%llx", (unsigned long long)record->address);
    }
    text_printf(text, "\n  kernel %s, block ", scene->kernel ? scene->kernel : "?");
    add_index(text, record->cta, scene->grid);
    text_printf(text, ", warp %u, lane %u, thread ", record->warp, record->lane);
    add_index(text, (uint64_t)record->warp * 32 + record->lane, scene->block);
    text_add(text, "\n");
    add_site(text, scene, record->site, "  ");
    if (record->detail[0]) text_printf(text, "  %s\n", record->detail);
    if (record->other.known) add_other(text, &record->other, scene);
    if (record->hint[0]) text_printf(text, "  hint: %s\n", record->hint);
}

/* Kept reports --------------------------------------------------------------------------------- */

struct VgReports {
    pthread_mutex_t lock;
    int count[VG_LAUNCH + 1], total;
    char *last;
};

VgReports *vg_reports_create(void) {
    VgReports *reports = calloc(1, sizeof *reports);
    if (reports) pthread_mutex_init(&reports->lock, NULL);
    return reports;
}

static void drop(VgReports *reports) {
    free(reports->last);
    reports->last = NULL;
    memset(reports->count, 0, sizeof reports->count);
    reports->total = 0;
}

void vg_reports_destroy(VgReports *reports) {
    if (!reports) return;
    drop(reports);
    pthread_mutex_destroy(&reports->lock);
    free(reports);
}

void vg_reports_add(VgReports *reports, VgFault fault, const char *text) {
    pthread_mutex_lock(&reports->lock);
    char *copy = strdup(text);
    if (copy) {
        free(reports->last);
        reports->last = copy;
    }
    reports->total++;
    if ((unsigned)fault < (unsigned)COUNT_OF(reports->count)) reports->count[fault]++;
    pthread_mutex_unlock(&reports->lock);
}

int vg_reports_count(VgReports *reports, VgFault fault) {
    pthread_mutex_lock(&reports->lock);
    int n = fault == VG_OK ? reports->total : reports->count[fault];
    pthread_mutex_unlock(&reports->lock);
    return n;
}

const char *vg_reports_last(VgReports *reports) { return reports->last ? reports->last : ""; }

void vg_reports_clear(VgReports *reports) {
    pthread_mutex_lock(&reports->lock);
    drop(reports);
    pthread_mutex_unlock(&reports->lock);
}
