// SPDX-License-Identifier: Apache-2.0
// Events of a trace as lines of JSON. Numbers are printed from integers: a locale has no say in them.
#include "runtime/base/trace.h"

#include <stdio.h>
#include <sys/stat.h>

void trace_add_escaped(Text *out, const char *text) {
    for (const char *c = text; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte == '"' || byte == '\\') text_printf(out, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f) text_printf(out, "\\u%04x", byte);
        else text_add_n(out, c, 1);
    }
}

static void add_string(Text *out, const char *field, const char *text) {
    text_printf(out, ",\"%s\":\"", field);
    trace_add_escaped(out, text);
    text_add(out, "\"");
}

static long long nanoseconds(double seconds) {
    return (long long)(seconds * 1e9 + (seconds < 0 ? -0.5 : 0.5));
}

// In microseconds, which is what the format counts in.
static void add_time(Text *out, const char *field, long long ns) {
    long long size = ns < 0 ? -ns : ns;
    text_printf(out, ",\"%s\":%s%lld.%03lld", field, ns < 0 ? "-" : "", size / 1000, size % 1000);
}

static void add_event(Text *out, const char *phase, TracePlace at) {
    text_printf(out, ",\n{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", phase, at.process, at.thread);
}

static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
                           "{\"ph\":\"M\",\"pid\":0,\"tid\":0,\"name\":\"trace\",\"args\":{\"by\":\"moec\"}}";

void trace_open(Text *out) {
    text_add(out, head);
}

Status trace_may_replace(const char *path) {
    struct stat info;
    char found[sizeof head - 1];
    if (stat(path, &info) || !S_ISREG(info.st_mode) || !info.st_size) return OK;
    FILE *file = fopen(path, "rb");
    size_t n = file ? fread(found, 1, sizeof found, file) : 0;
    if (file) fclose(file);
    if (n == sizeof found && !memcmp(found, head, n)) return OK;
    return status_fail(ERR_ARGUMENT, "--trace: %s is there and is no trace that moec wrote\n  hint: another name, or remove it",
                       path);
}

void trace_close(Text *out) {
    text_add(out, "]}\n");
}

static void add_name(Text *out, TracePlace at, const char *of, int32_t order, const char *name) {
    add_event(out, "M", at);
    text_printf(out, ",\"name\":\"%s_name\",\"args\":{\"name\":\"", of);
    trace_add_escaped(out, name);
    text_add(out, "\"}}");
    add_event(out, "M", at);
    text_printf(out, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%d}}", of, order);
}

void trace_process(Text *out, int32_t process, const char *name) {
    add_name(out, (TracePlace){ process, 0 }, "process", process, name);
}

void trace_thread(Text *out, TracePlace at, const char *name) {
    add_name(out, at, "thread", at.thread, name);
}

void trace_span(Text *out, TracePlace at, const char *name, const char *category, double begin_s, double end_s,
                const char *args) {
    add_event(out, "X", at);
    add_string(out, "name", name);
    add_string(out, "cat", category);
    // The difference of what is printed: rounded by itself, neighbours would overlap.
    long long begin = nanoseconds(begin_s), end = nanoseconds(end_s);
    add_time(out, "ts", begin);
    add_time(out, "dur", end > begin ? end - begin : 0);
    if (args) text_printf(out, ",\"args\":{%s}", args);
    text_add(out, "}");
}

void trace_counter(Text *out, int32_t process, const char *name, double at_s, const char *unit, double value) {
    add_event(out, "C", (TracePlace){ process, 0 });
    add_string(out, "name", name);
    add_time(out, "ts", nanoseconds(at_s));
    text_add(out, ",\"args\":{\"");
    trace_add_escaped(out, unit);
    text_add(out, "\":");
    text_add_decimal(out, value);
    text_add(out, "}}");
}

void trace_arrow(Text *out, TracePlace at, const char *id, bool begins, double at_s) {
    add_event(out, begins ? "s" : "f", at);
    text_add(out, ",\"name\":\"to\",\"cat\":\"message\"");
    add_string(out, "id", id);
    add_time(out, "ts", nanoseconds(at_s));
    text_add(out, begins ? "}" : ",\"bp\":\"e\"}"); // e: to the span around it
}
