// SPDX-License-Identifier: Apache-2.0
// What a run writes about itself: TensorBoard's records, byte for byte, and the picture.
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/train/helpers.h"

/* TensorBoard ---------------------------------------------------------------------------------- */

// CRC-32C a bit at a time, as its definition has it.
static uint32_t slow_crc(const uint8_t *bytes, size_t n) {
    uint32_t sum = 0xffffffff;
    for (size_t i = 0; i < n; i++)
        for (int bit = 0; bit < 8; bit++) {
            uint32_t top = (sum ^ (uint32_t)(bytes[i] >> bit)) & 1;
            sum = sum >> 1 ^ (top ? 0x82f63b78 : 0);
        }
    return sum ^ 0xffffffff;
}

static void crc(void **state) {
    (void)state;
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c("123456789", 9), 0xe3069283); // the check value of the catalogue
    uint8_t zeros[32] = { 0 }, bytes[700];
    assert_int_equal(crc32c(zeros, 32), 0x8a9136aa);      // RFC 3720, B.4
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)hash_mix(1, 2, i);
    for (size_t n = 0; n < sizeof bytes; n += 37)
        assert_int_equal(crc32c(bytes, n), slow_crc(bytes, n));
}

typedef struct Reader { const uint8_t *at, *end; } Reader;

static uint64_t varint(Reader *r) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(r->at < r->end && shift < 64);
        value |= (uint64_t)(*r->at & 127) << shift;
        if (!(*r->at++ & 128)) return value;
    }
}

static Reader piece(Reader *r, uint64_t n) {
    assert_true(n <= (uint64_t)(r->end - r->at));
    Reader part = { r->at, r->at + n };
    r->at += n;
    return part;
}

// The next field of a message: its number, its bytes, or its value as a varint.
static int field(Reader *r, Reader *bytes, uint64_t *value) {
    uint64_t key = varint(r);
    switch (key & 7) {
    case 0: *value = varint(r); break;
    case 1: *bytes = piece(r, 8); break;
    case 2: *bytes = piece(r, varint(r)); break;
    case 5: *bytes = piece(r, 4); break;
    default: fail();
    }
    return (int)(key >> 3);
}

typedef struct Event { double wall; int64_t step; Reader version, summary, log; } Event;

// The next record of a file, whose checksums must be right.
static Event next_event(Reader *file) {
    Reader head = piece(file, 8), sum = piece(file, 4);
    uint64_t length, value = 0;
    uint32_t stored;
    memcpy(&length, head.at, 8);
    Reader data = piece(file, length), tail = piece(file, 4), bytes = { 0 };
    for (int i = 0; i < 2; i++) {
        uint32_t found = i ? slow_crc(data.at, length) : slow_crc(head.at, 8);
        memcpy(&stored, i ? tail.at : sum.at, 4);
        assert_int_equal(stored, (found >> 15 | found << 17) + 0xa282ead8u);
    }
    Event event = { 0 };
    while (data.at < data.end) switch (field(&data, &bytes, &value)) {
        case 1: memcpy(&event.wall, bytes.at, 8); break;
        case 2: event.step = (int64_t)value; break;
        case 3: event.version = bytes; break;
        case 5: event.summary = bytes; break;
        case 7: event.log = bytes; break;
        default: fail();
        }
    return event;
}

// The value of a tag in a summary, NAN if it has none; *n counts the values.
static float value_of(Reader summary, const char *tag, int *n) {
    float result = NAN;
    *n = 0;
    while (summary.at < summary.end) {
        Reader value = { 0 }, name = { 0 }, number = { 0 };
        uint64_t unused;
        assert_int_equal(field(&summary, &value, &unused), 1);
        assert_int_equal(field(&value, &name, &unused), 1);
        assert_int_equal(field(&value, &number, &unused), 2);
        assert_true(value.at == value.end && number.end - number.at == 4);
        if ((size_t)(name.end - name.at) == strlen(tag) && !memcmp(name.at, tag, strlen(tag)))
            memcpy(&result, number.at, 4);
        ++*n;
    }
    return result;
}

static char *event_file(const char *run) {
    DIR *folder = opendir(run);
    char *path = NULL;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (!strncmp(entry->d_name, "events.out.tfevents.", 20)) {
            assert_null(path);
            path = path_in(run, entry->d_name);
        }
    closedir(folder);
    return path;
}

static void events_read_back(void **state) {
    (void)state;
    const char *run = scratch_folder();
    Journal journal;
    EXPECT_OK(journal_open(run, 41, true, &journal));
    EXPECT_OK(journal_step(&journal,
                           json_pack("{s:i, s:i, s:f, s:f, s:[i,i], s:n, s:i}", "step", 42,
                                     "tokens", 9, "time", 0.5, "train/CE loss", 2.5,
                                     "train/block 01/load", 1, 2, "train/PPL",
                                     "optim/step skipped", 300)));
    EXPECT_OK(journal_eval(&journal, json_pack("{s:i, s:f}", "step", 300, "eval/CE loss", 1.25)));
    EXPECT_OK(journal_sync(&journal));
    journal_close(&journal);
    size_t n;
    const char *bytes = read_whole(event_file(run), &n);
    Reader file = { (const uint8_t *)bytes, (const uint8_t *)bytes + n };
    Event first = next_event(&file), start = next_event(&file), step = next_event(&file),
          eval = next_event(&file);
    assert_true(file.at == file.end);
    assert_int_equal(first.version.end - first.version.at, 13);
    assert_memory_equal(first.version.at, "brain.Event:2", 13);
    assert_true(first.wall > 1.5e9 && start.wall >= first.wall);
    assert_int_equal(start.step, 42); // what another session wrote from here on is void
    assert_int_equal(start.log.end - start.log.at, 2);
    assert_memory_equal(start.log.at, "\x08\x01", 2); // status START
    int values;
    assert_int_equal(step.step, 42);
    assert_true(value_of(step.summary, "train/CE loss", &values) == 2.5f);
    assert_true(value_of(step.summary, "optim/step skipped", &values) == 300);
    assert_int_equal(values, 2); // neither vectors nor nulls, nor step, tokens and time
    assert_int_equal(eval.step, 300);
    assert_true(value_of(eval.summary, "eval/CE loss", &values) == 1.25f);
}

static void events_may_be_left_out(void **state) {
    (void)state;
    const char *run = scratch_folder();
    Journal journal;
    EXPECT_OK(journal_open(run, 0, false, &journal));
    EXPECT_OK(journal_step(&journal, json_pack("{s:i, s:f}", "step", 1, "train/CE loss", 2.0)));
    EXPECT_OK(journal_sync(&journal));
    journal_close(&journal);
    assert_null(event_file(run));
    expect_failure(journal_open(path_in(run, "none"), 0, true, &journal), ERR_IO, "metrics.jsonl");
    journal_close(&journal);
    assert_int_equal(journal_step(&journal, NULL), ERR_MEMORY); // as json_pack fails
}

/* Curves and the picture ----------------------------------------------------------------------- */

static void curves_keep_means_in_bounded_memory(void **state) {
    (void)state;
    static Curve curve; // a function of the values, however many there are
    const int counts[] = { 1, 1023, 1024, 1025, 2048, 2049, 5000, 100000 };
    for (int c = 0; c < COUNT_OF(counts); c++) {
        curve = (Curve) { 0 };
        double sum = 0, kept = 0;
        for (int i = 1; i <= counts[c]; i++) {
            curve_add(&curve, i, 3 * i + 1);
            sum += 3 * i + 1;
        }
        int64_t n = 0;
        double before = 0;
        assert_true(curve.n <= CURVE_POINTS);
        assert_true(counts[c] < CURVE_POINTS || curve.n >= CURVE_POINTS / 2);
        for (int i = 0; i < curve.n; i++) {
            const CurvePoint *point = &curve.at[i];
            assert_true(point->n == curve.stride || (i == curve.n - 1 && point->n < curve.stride));
            double step = point->step / (double)point->n, value = point->value / (double)point->n;
            assert_true(step > before && fabs(value - (3 * step + 1)) < 1e-6);
            before = step;
            n += point->n;
            kept += point->value;
        }
        assert_int_equal(n, counts[c]);
        assert_true(kept == sum);
    }
    int n = curve.n;
    curve_add(&curve, 1, NAN);
    curve_add(&curve, 1, INFINITY);
    assert_int_equal(curve.n, n);
}

// How often `part` occurs.
static int occurrences(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

// Every coordinate of the picture lies in it.
static void check_paths(const char *svg) {
    for (const char *at = svg; (at = strstr(at, "<path d=\"M"));) {
        at += 9;
        double x, y;
        int used;
        while ((*at == 'M' || *at == 'L') && sscanf(at + 1, "%lf %lf%n", &x, &y, &used) == 2) {
            assert_true(x >= 0 && x <= 860 && y >= 0 && y <= 480);
            at += 1 + used;
        }
    }
}

static void picture(void **state) {
    (void)state;
    static Curve train, held_out;
    Text svg = { 0 };
    picture_print("a <b> & c", &train, &held_out, &svg); // before the first step
    assert_non_null(strstr(svg.at, "<title>a &lt;b> &amp; c</title>"));
    assert_null(strstr(svg.at, "nan"));
    assert_null(strstr(svg.at, "training"));
    for (int i = 1; i <= 200; i++) // with a spike, drawn at the edge
        curve_add(&train, i * 100, i == 120 ? 1e30 : 1 + 4 / (1 + i * 0.1));
    for (int i = 1; i <= 4; i++) curve_add(&held_out, i * 5000, 2.0 - 0.1 * i);
    svg.bytes = 0;
    picture_print("tiny", &train, &held_out, &svg);
    assert_int_equal(strncmp(svg.at, "<svg xmlns=", 11), 0);
    assert_int_equal(occurrences(svg.at, "<circle"), 4);
    assert_int_equal(occurrences(svg.at, "<g"), occurrences(svg.at, "</g>"));
    assert_int_equal(occurrences(svg.at, "<text"), occurrences(svg.at, "</text>"));
    static const char *const parts[] = {
        ">step</text>", ">loss, nats per token</text>", ">0</text>", ">20k</text>", ">4</text>",
        "training 1.19<", "held out 1.6<", "</svg>\n"
    };
    for (int i = 0; i < COUNT_OF(parts); i++) {
        if (!strstr(svg.at, parts[i])) print_error("no %s in %s\n", parts[i], svg.at);
        assert_non_null(strstr(svg.at, parts[i]));
    }
    assert_null(strstr(svg.at, "1e+")); // the spike stretches nothing
    check_paths(svg.at);
    text_finish(&svg);
}

static void picture_of_a_constant(void **state) {
    (void)state;
    static Curve train, none;
    Text svg = { 0 };
    for (int i = 1; i <= 3; i++) curve_add(&train, i, 0.25);
    picture_print("constant", &train, &none, &svg);
    check_paths(svg.at);
    assert_null(strstr(svg.at, "nan"));
    assert_null(strstr(svg.at, "inf"));
    text_finish(&svg);
}

// A session that goes on reads what stays of the lines, so that the picture is of the whole run.
static void picture_after_a_resume(void **state) {
    (void)state;
    const char *whole = scratch_folder(), *parts = scratch_folder();
    static Journal journal;
    for (int part = 0; part < 2; part++) {
        const char *run = part ? parts : whole;
        for (int from = 0; from < 30; from += part ? 10 : 30) {
            EXPECT_OK(journal_open(run, from, false, &journal));
            // A session ends five steps after its checkpoint: those are done again by the next.
            for (int i = from + 1; i <= from + (part ? 15 : 30) && i <= 30; i++)
                EXPECT_OK(journal_step(
                    &journal, json_pack("{s:i, s:f}", "step", i, "train/CE loss", 3.0 / i)));
            if (from + (part ? 10 : 30) >= 30)
                EXPECT_OK(journal_eval(
                    &journal, json_pack("{s:i, s:f, s:i}", "step", 30, "eval/CE loss", 0.2,
                                        "eval/tokens", 77)));
            EXPECT_OK(journal_picture(&journal, "model"));
            journal_close(&journal);
        }
    }
    size_t n, m;
    char *a = read_whole(path_in(whole, "loss.svg"), &n);
    char *b = read_whole(path_in(parts, "loss.svg"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    EXPECT_OK(journal_open(whole, 30, false, &journal));
    assert_int_equal(journal.eval_step, 30);
    assert_int_equal(journal.eval_tokens, 77);
    journal_close(&journal);
    EXPECT_OK(journal_open(whole, 29, false, &journal)); // before that evaluation
    assert_int_equal(journal.eval_step, -1);
    journal_close(&journal);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crc),
        cmocka_unit_test(events_read_back),
        cmocka_unit_test(events_may_be_left_out),
        cmocka_unit_test(curves_keep_means_in_bounded_memory),
        cmocka_unit_test(picture),
        cmocka_unit_test(picture_of_a_constant),
        cmocka_unit_test(picture_after_a_resume),
    };
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
