// SPDX-License-Identifier: Apache-2.0
// TensorBoard event files, without protobuf.
//
//   file    = records; record = u64 length, u32 masked CRC-32C of it, data, u32 masked CRC-32C
//   data    = Event { 1: double wall_time, 2: int64 step, 3: string file_version,
//                     5: Summary { 1: Value { 1: string tag, 2: float simple_value } ... },
//                     7: SessionLog { 1: enum status } }
//
// The first record is the version. A session that goes on from step n begins with the session log
// START at n + 1, which makes TensorBoard forget what an interrupted session wrote past n.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/train/journal.h"

uint32_t crc32c(const void *bytes, size_t n) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0x82f63b78 : 0);
            table[i] = value;
        }
    uint32_t sum = ~0u;
    for (const uint8_t *at = bytes; n; n--) sum = sum >> 8 ^ table[(sum ^ *at++) & 255];
    return ~sum;
}

/* Protobuf's wire format ----------------------------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void add_varint(Text *out, uint64_t value) {
    char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((value & 127) | (value > 127 ? 128 : 0));
        value >>= 7;
    } while (value);
    text_add_n(out, bytes, n);
}

static void add_key(Text *out, int field, int type) {
    add_varint(out, (uint64_t)(field << 3 | type));
}

static void add_bytes(Text *out, int field, const void *bytes, size_t n) {
    add_key(out, field, BYTES);
    add_varint(out, n);
    text_add_n(out, bytes, n);
}

// Integers and IEEE numbers are little-endian on disk and here.
static void add_event_start(Text *out, int64_t step) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double wall = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    out->bytes = 0;
    add_key(out, 1, FIXED64);
    text_add_n(out, (const char *)&wall, sizeof wall);
    add_key(out, 2, VARINT);
    add_varint(out, (uint64_t)step);
}

static void add_value(Text *summary, Text *value, const char *tag, float number) {
    value->bytes = 0;
    add_bytes(value, 1, tag, strlen(tag));
    add_key(value, 2, FIXED32);
    text_add_n(value, (const char *)&number, sizeof number);
    add_bytes(summary, 1, value->at, value->bytes);
}

/* The file ------------------------------------------------------------------------------------- */

static uint32_t masked(const void *bytes, size_t n) {
    uint32_t sum = crc32c(bytes, n);
    return (sum >> 15 | sum << 17) + 0xa282ead8;
}

static Status write_record(Events *events) {
    const Text *event = &events->event;
    uint64_t length = event->bytes;
    uint32_t of_length = masked(&length, sizeof length), of_data = masked(event->at, event->bytes);
    bool good = fwrite(&length, sizeof length, 1, events->file) == 1 &&
                fwrite(&of_length, sizeof of_length, 1, events->file) == 1 &&
                fwrite(event->at, event->bytes, 1, events->file) == 1 &&
                fwrite(&of_data, sizeof of_data, 1, events->file) == 1 &&
                fflush(events->file) == 0;
    return good ? OK : journal_failed(events->path, errno);
}

Status events_open(const char *run, int64_t step, Events *out) {
    char host[64] = "host";
    gethostname(host, sizeof host - 1);
    for (char *c = host; *c; c++)
        if (*c == '/') *c = '-';
    *out = (Events) { 0 };
    snprintf(out->path, sizeof out->path, "%s/events.out.tfevents.%010lld.%s.%ld", run,
             (long long)time(NULL), host, (long)getpid());
    out->file = fopen(out->path, "ae");
    if (!out->file)
        return status_fail(status_errno(errno), "cannot open %s: %s", out->path, strerror(errno));
    static const char version[] = "brain.Event:2", start[] = { 1 << 3 | VARINT, 1 };
    add_event_start(&out->event, 0);
    add_bytes(&out->event, 3, version, sizeof version - 1);
    TRY(write_record(out));
    add_event_start(&out->event, step + 1);
    add_bytes(&out->event, 7, start, sizeof start);
    return write_record(out);
}

Status events_write(Events *events, const json_t *line) {
    if (!events->file) return OK;
    events->summary.bytes = 0;
    const char *tag;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)line, tag, value)
        if (json_is_number(value) && strchr(tag, '/'))
            add_value(&events->summary, &events->value, tag, (float)json_number_value(value));
    add_event_start(&events->event, json_integer_value(json_object_get(line, "step")));
    add_bytes(&events->event, 5, events->summary.at, events->summary.bytes);
    return write_record(events);
}

void events_close(Events *events) {
    if (events->file) fclose(events->file);
    text_finish(&events->event);
    text_finish(&events->summary);
    text_finish(&events->value);
    *events = (Events) { 0 };
}
