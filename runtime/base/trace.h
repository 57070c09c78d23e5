// SPDX-License-Identifier: Apache-2.0
// Pictures of what ran when, in the format that Chrome's tracing made common: Perfetto (ui.perfetto.dev)
// and chrome://tracing open it. Format: "Trace Event Format", Google, the JSON object form.
//
//   {"displayTimeUnit":"ms","traceEvents":[
//   EVENT,
//   EVENT]}
//
// A line is an event, so texts of several ranks are put together as they are. A process is a rank, a thread
// one of its orders of work. Spans of a thread lie apart or within each other. Times are seconds from the
// picture's beginning, written in whole nanoseconds.
#ifndef MOEC_TRACE_H
#define MOEC_TRACE_H

#include "runtime/base/base.h"

typedef struct TracePlace { int32_t process, thread; } TracePlace;

// The whole of a picture: open, any number of events, close.
void trace_open(Text *out);
void trace_close(Text *out);
// Names, and where they stand: smaller numbers higher.
void trace_process(Text *out, int32_t process, const char *name);
void trace_thread(Text *out, TracePlace at, const char *name);
// `args`: members of a JSON object, `"microbatch":3,"flops":1e9`; NULL: none. Names may hold any bytes.
void trace_span(Text *out, TracePlace at, const char *name, const char *category, double begin_s, double end_s,
                const char *args);
// One curve of a process: its value from `at_s` on.
void trace_counter(Text *out, int32_t process, const char *name, double at_s, const char *unit, double value);
// The tail (begins) or the head of the arrow `id`, within a span of that thread at that time.
void trace_arrow(Text *out, TracePlace at, const char *id, bool begins, double at_s);
// The bytes between quotes of a JSON string.
void trace_add_escaped(Text *out, const char *text);

// ERR_ARGUMENT if a file of that name has anything but a picture that this wrote: data, a spec, a run's record.
Status trace_may_replace(const char *path);

#endif
