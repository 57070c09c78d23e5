// SPDX-License-Identifier: Apache-2.0
// Data: formats, damage, what training may see, and the order of sequences.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/train/helpers.h"

static const char *folder;

static int make(void **state) {
    (void)state;
    folder = scratch_folder();
    return 0;
}

static char *file_of(const char *name, const void *bytes, size_t n) {
    char *path = path_in(folder, name);
    write_file(path, bytes, n);
    return path;
}

static DataOptions over(const char *const *paths, int n) {
    return (DataOptions) { .files = paths, .n_files = n, .item = 1, .eos = -1, .sequence = 4,
                           .vocab = 256 };
}

static void expect_tokens(const DataSet *set, int64_t sequence, int64_t ahead,
                          const int32_t *expected) {
    int32_t found[8];
    data_tokens(set, sequence, ahead, found);
    for (int64_t t = 0; t < set->sequence; t++) assert_int_equal(found[t], expected[t]);
}
#define TOKENS(...) (const int32_t[]) { __VA_ARGS__ }

static void sequences_and_ends(void **state) {
    (void)state;
    const char *paths[] = { file_of("a", "abcdefghij", 10), file_of("b", "\xff\x00\x80", 3),
                            file_of("one", "x", 1), file_of("c", "ABCDE", 5) };
    DataOptions options = over(paths, 4);
    Data *data;
    EXPECT_OK(data_open(&options, &data));
    const DataSet *set = &data->train;
    assert_int_equal(set->n_parts, 3);                      // one token has no target
    assert_int_equal(set->n_sequences, 3 + 1 + 1);
    assert_int_equal(set->n_targets, 9 + 2 + 4);
    expect_tokens(set, 0, 0, TOKENS('a', 'b', 'c', 'd'));
    expect_tokens(set, 0, 1, TOKENS('b', 'c', 'd', 'e'));       // looks past its own end
    expect_tokens(set, 1, 2, TOKENS('g', 'h', 'i', 'j'));
    expect_tokens(set, 2, 0, TOKENS('i', 'j', -1, -1));         // but not past the document's
    expect_tokens(set, 2, 1, TOKENS('j', -1, -1, -1));
    expect_tokens(set, 2, 9, TOKENS(-1, -1, -1, -1));
    expect_tokens(set, 3, 0, TOKENS(255, 0, 128, -1));          // any bytes
    expect_tokens(set, 4, 1, TOKENS('B', 'C', 'D', 'E'));
    expect_tokens(set, 4, 2, TOKENS('C', 'D', 'E', -1));
    expect_tokens(set, -1, 0, TOKENS(-1, -1, -1, -1));
    const int64_t targets[] = { 4, 4, 1, 2, 4 };
    for (int i = 0; i < 5; i++) assert_int_equal(data_targets(set, i), targets[i]);
    assert_int_equal(data_targets(set, -1), 0);
    const int64_t some[] = { 2, -1, 3 };
    assert_int_equal(data_batch_targets(&(DataBatch) { .set = set, .sequences = some }, 3), 3);
    data_close(data);
}

// Every target of training and of the tail, as (input, label) pairs, in order.
static void held_out_is_invisible(void **state) {
    (void)state;
    for (int64_t held = 1; held <= 9; held++) {
        const char *paths[] = { file_of("a", "0123456789", 10) };
        DataOptions options = over(paths, 1);
        options.held_out = held;
        Data *data;
        if (held == 9) { // one token is left
            expect_failure(data_open(&options, &data), ERR_INPUT, "leaves no training data");
            continue;
        }
        EXPECT_OK(data_open(&options, &data));
        for (int64_t i = 0; i < data->train.n_sequences; i++)
            for (int64_t ahead = 0; ahead < 12; ahead++) {
                int32_t tokens[4];
                data_tokens(&data->train, i, ahead, tokens);
                for (int t = 0; t < 4; t++) assert_true(tokens[t] < '0' + 10 - held);
            }
        assert_int_equal(data->train.n_targets, 10 - held - 1);
        assert_int_equal(data->held_out.n_targets, held);        // the tail, all of it
        int32_t labels[4];
        data_tokens(&data->held_out, 0, 1, labels);
        assert_int_equal(labels[0], '0' + 10 - held);
        data_close(data);
    }
    const char *paths[] = { path_in(folder, "a") };
    DataOptions options = over(paths, 1);
    Data *data;
    options.held_out = 10;
    expect_failure(data_open(&options, &data), ERR_ARGUMENT, "--held-out is 10, but the last file");
    options.held_out = 3;
    options.eval_files = paths;
    options.n_eval_files = 1;
    expect_failure(data_open(&options, &data), ERR_ARGUMENT, "exclude each other");
    options.held_out = 0;
    EXPECT_OK(data_open(&options, &data));
    assert_int_equal(data->held_out.n_targets, 9);
    data_close(data);
}

static void uint16(void **state) {
    (void)state;
    const uint8_t ids[] = { 1, 0, 0, 1, 0x1f, 0x8b, 8, 0, 2, 0 };
    const char *paths[] = { file_of("ids", ids, sizeof ids) };
    DataOptions options = over(paths, 1);
    options.item = 2;
    options.vocab = 65536;
    Data *data;
    EXPECT_OK(data_open(&options, &data));
    expect_tokens(&data->train, 0, 0, TOKENS(1, 256, 0x8b1f, 8));
    expect_tokens(&data->train, 0, 1, TOKENS(256, 0x8b1f, 8, 2));
    data_close(data);
    const uint8_t gzip_like[] = { 0x1f, 0x8b, 8, 0, 1, 0 };     // token ids, not gzip
    paths[0] = file_of("like", gzip_like, sizeof gzip_like);
    EXPECT_OK(data_open(&options, &data));
    expect_tokens(&data->train, 0, 0, TOKENS(0x8b1f, 8, 1, -1));
    data_close(data);
    paths[0] = file_of("ids", ids, sizeof ids);
    options.vocab = 0x8b1f;
    expect_failure(data_open(&options, &data), ERR_INPUT,
                   "ids: token 35615 at offset 4, but the model's vocabulary is 35615");
    options.vocab = 65536;
    paths[0] = file_of("odd", ids, 5);
    expect_failure(data_open(&options, &data), ERR_INPUT,
                   "odd has 5 bytes, which is not a whole number of 2-byte tokens");
}

static void uint32(void **state) {
    (void)state;
    const uint8_t ids[] = { 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f };
    const char *paths[] = { file_of("wide", ids, sizeof ids) };
    DataOptions options = over(paths, 1);
    options.item = 4;
    options.vocab = (int64_t)1 << 31;
    Data *data;
    EXPECT_OK(data_open(&options, &data));
    expect_tokens(&data->train, 0, 0, TOKENS(1, 256, 65536, INT32_MAX));
    data_close(data);
    options.vocab = 65536;
    expect_failure(data_open(&options, &data), ERR_INPUT,
                   "wide: token 65536 at offset 8, but the model's vocabulary is 65536");
    const uint8_t negative[] = { 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff };
    paths[0] = file_of("negative", negative, sizeof negative);
    expect_failure(data_open(&options, &data), ERR_INPUT, "negative: token 4294967295 at offset 4");
    paths[0] = file_of("odd", ids, 7);
    expect_failure(data_open(&options, &data), ERR_INPUT, "a whole number of 4-byte tokens");
}

/* NumPy ---------------------------------------------------------------------------------------- */

// A file of the version, its header padded as NumPy does, then `n` bytes of data.
static size_t npy(uint8_t *out, int version, const char *header, const void *data, size_t n) {
    size_t start = version > 1 ? 12 : 10, text = strlen(header),
           length = (size_t)round_up((int64_t)(start + text + 1), 64) - start;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (uint8_t)version, out[7] = 0;
    for (size_t i = 8; i < start; i++) out[i] = (uint8_t)(length >> (8 * (i - 8)));
    memset(out + start, ' ', length);
    memcpy(out + start, header, text);
    out[start + length - 1] = '\n';
    memcpy(out + start + length, data, n);
    return start + length + n;
}

static void numpy_arrays(void **state) {
    (void)state;
    static const uint8_t ids[] = { 7, 0, 8, 0, 9, 1, 4, 0, 5, 0, 6, 0 };
    static const struct { int version, item; const char *header; int32_t first, second; } good[] = {
        { 1, 2, "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }", 7, 8 },
        { 2, 2, "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }", 7, 8 },
        { 3, 2, "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }", 7, 8 },
        { 1, 2, "{\"shape\":(6,),\"fortran_order\":True,\"descr\":\"<u2\"}", 7, 8 },
        { 1, 4, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }", 7 + (8 << 16),
          265 + (4 << 16) },
        { 1, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (12,), }", 7, 0 },
    };
    uint8_t bytes[512];
    Data *data;
    for (int i = 0; i < COUNT_OF(good); i++) {
        size_t n = npy(bytes, good[i].version, good[i].header, ids, sizeof ids);
        const char *paths[] = { file_of("a.npy", bytes, n) };
        DataOptions options = over(paths, 1);
        options.item = good[i].item;
        options.vocab = 1 << 30;
        EXPECT_OK(data_open(&options, &data));
        assert_int_equal(data->files[0].n, 12 / good[i].item);
        int32_t tokens[4];
        data_tokens(&data->train, 0, 0, tokens);
        assert_int_equal(tokens[0], good[i].first);
        assert_int_equal(tokens[1], good[i].second);
        data_close(data);
    }
    static const struct { int version; const char *header, *message; } bad[] = {
        { 4, "{}", "a.npy is a NumPy array of version 4, expected 1 to 3" },
        { 0, "{}", "of version 0" },
        { 1, "{'descr': '<u4', 'fortran_order': False, 'shape': (3,), }",
          "a.npy is a NumPy array of '<u4', expected integers of 2 bytes, little-endian\n  hint: "
          "--tokens uint32" },
        { 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (12,), }", "hint: --tokens bytes" },
        { 1, "{'descr': '>u2', 'fortran_order': False, 'shape': (6,), }",
          "array of '>u2', expected integers of 2 bytes, little-endian\n  hint: save it as "
          "array.astype('<u2')" },
        { 1, "{'descr': '<f2', 'fortran_order': False, 'shape': (6,), }", "array of '<f2', exp" },
        { 1, "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }", "in Fortran order" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }",
          "has 12 bytes of data, its NumPy header says 5 numbers of 2: it is truncated" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (7,), }", "says 7 numbers of 2" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (6), }", "malformed at offset" },
        { 1, "{'descr': '<u2', 'fortran_order': Maybe, 'shape': (6,), }", "malformed at offset 4" },
        { 1, "{'descr': '<u2', 'descr': '<u2', 'shape': (6,)}", "malformed" },
        { 1, "{'descr': '<u2', 'shape': (6,), }", "malformed" },
        { 1, "{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (6,), }", "malformed" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,), }",
          "malformed" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (9999999999, 9999999999), }",
          "malformed" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), } x", "malformed" },
        { 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (6,", "malformed" },
        { 1, "", "malformed at offset 64" },
    };
    for (int i = 0; i < COUNT_OF(bad); i++) {
        size_t n = npy(bytes, bad[i].version, bad[i].header, ids, sizeof ids);
        const char *paths[] = { file_of("a.npy", bytes, n) };
        DataOptions options = over(paths, 1);
        options.item = 2;
        options.vocab = 65536;
        Status status = data_open(&options, &data);
        if (status == OK) print_error("accepted: %s\n", bad[i].header);
        assert_int_not_equal(status, OK);
        expect_failure(status, status, bad[i].message);
    }
}

static void numpy_truncated_anywhere(void **state) {
    (void)state;
    uint8_t bytes[512], ids[8] = { 1, 0, 2, 0, 3, 0, 4, 0 };
    size_t n = npy(bytes, 2, "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }", ids, 8);
    for (size_t cut = 8; cut < n; cut++) {
        uint8_t *copy = malloc(cut); // of its own size, so that the sanitizer sees a read past it
        memcpy(copy, bytes, cut);
        size_t header;
        expect_failure(npy_parse("f", copy, cut, 2, &header), ERR_FORMAT, "f ");
        free(copy);
    }
    assert_false(npy_recognise(bytes, 7));
}

/* Several documents in a file ------------------------------------------------------------------ */

static void documents_end_at_eos(void **state) {
    (void)state;
    //                                     0123 4567 890
    const char *paths[] = { file_of("docs", "ab.c d.e. ..", 12) };
    DataOptions options = over(paths, 1);
    options.eos = '.';
    Data *data;
    EXPECT_OK(data_open(&options, &data));
    const DataSet *set = &data->train;
    assert_int_equal(set->n_sequences, 3);
    assert_int_equal(set->n_targets, 11 - 4); // four ends have something after them
    expect_tokens(set, 0, 0, TOKENS('a', 'b', '.', 'c'));       // inputs are all there
    expect_tokens(set, 0, 1, TOKENS('b', '.', -1, ' '));
    expect_tokens(set, 0, 2, TOKENS('.', -1, -1, 'd'));
    expect_tokens(set, 0, 3, TOKENS(-1, -1, -1, '.'));
    expect_tokens(set, 0, 4, TOKENS(-1, -1, -1, -1));
    expect_tokens(set, 1, 1, TOKENS('d', '.', -1, '.'));
    expect_tokens(set, 2, 0, TOKENS('.', ' ', '.', '.'));
    expect_tokens(set, 2, 1, TOKENS(-1, '.', -1, -1));
    expect_tokens(set, 2, 9, TOKENS(-1, -1, -1, -1));           // past the part's end
    int64_t sum = 0;
    for (int64_t i = 0; i < 3; i++) {
        int32_t labels[4];
        int64_t n = 0;
        data_tokens(set, i, 1, labels);
        for (int t = 0; t < 4; t++) n += labels[t] >= 0;
        assert_int_equal(data_targets(set, i), n); // the labels that are there
        sum += n;
    }
    assert_int_equal(sum, set->n_targets);
    static const int32_t positions[3][4] = { { 0, 1, 2, 0 }, { 0, 1, 2, 0 }, { 0, 0, 1, 0 } };
    static const int32_t segments[3][4] = { { 7, 7, 7, 8 }, { 9, 9, 9, 10 }, { 11, 12, 12, 13 } };
    for (int32_t i = 0, next = 7; i < 3; i++) {
        int32_t position[4], segment[4];
        next = data_places(set, i, next, position, segment);
        assert_memory_equal(position, positions[i], sizeof position);
        assert_memory_equal(segment, segments[i], sizeof segment);
    }
    int32_t segment[4];
    assert_int_equal(data_places(set, -1, 3, NULL, segment), 4); // an empty one
    assert_memory_equal(segment, TOKENS(3, 3, 3, 3), sizeof segment);
    data_close(data);
    options.eos = -1; // one document: every target
    EXPECT_OK(data_open(&options, &data));
    assert_int_equal(data->train.n_targets, 11);
    expect_tokens(&data->train, 0, 1, TOKENS('b', '.', 'c', ' '));
    data_close(data);
    options.eos = 256;
    expect_failure(data_open(&options, &data), ERR_ARGUMENT,
                   "--eos is 256, but the model's vocabulary is 256");
    paths[0] = file_of("ends", "....", 4);
    options.eos = '.';
    expect_failure(data_open(&options, &data), ERR_INPUT, "leaves no training data");
}

static void wrong_files(void **state) {
    (void)state;
    Data *data;
    const char *paths[] = { path_in(folder, "missing") };
    DataOptions options = over(paths, 1);
    expect_failure(data_open(&options, &data), ERR_INPUT, "missing: No such file");
    paths[0] = folder;
    expect_failure(data_open(&options, &data), ERR_INPUT, "is not a regular file");
    char *pipe = path_in(folder, "pipe"); // nobody writes to it
    assert_int_equal(mkfifo(pipe, 0600), 0);
    paths[0] = pipe;
    expect_failure(data_open(&options, &data), ERR_INPUT, "pipe is not a regular file");
    paths[0] = file_of("empty", "", 0);
    expect_failure(data_open(&options, &data), ERR_INPUT, "empty is empty");
    paths[0] = file_of("small", "ab\xc8", 3);
    options.vocab = 200;
    expect_failure(data_open(&options, &data), ERR_INPUT,
                   "small: token 200 at offset 2, but the model's vocabulary is 200");
    options.n_files = 0;
    expect_failure(data_open(&options, &data), ERR_ARGUMENT, "no training data");
    uint8_t packed[64];
    paths[0] = file_of("nothing.gz", packed, gzip_bytes("", 0, packed, sizeof packed));
    options = over(paths, 1);
    expect_failure(data_open(&options, &data), ERR_INPUT, "is empty once unpacked");
}

/* gzip ----------------------------------------------------------------------------------------- */

enum { PLAIN = 3000 };
static uint8_t plain[PLAIN], packed[2 * PLAIN + 200];

static size_t pack(void) {
    for (int i = 0; i < PLAIN; i++)
        plain[i] = (uint8_t)(hash_mix(1, 0, (uint64_t)i) % 7 ? i % 50 : i * 7);
    return gzip_bytes(plain, PLAIN, packed, sizeof packed);
}

static void gzip_round_trip(void **state) {
    (void)state;
    size_t n = pack(), both = n + gzip_bytes(plain, 100, packed + n, sizeof packed - n), n_out;
    uint8_t *out;
    assert_true(gzip_recognise(packed, n) && !gzip_recognise(packed, 1) &&
                !gzip_recognise(plain, PLAIN));
    EXPECT_OK(gzip_unpack("f", packed, both, &out, &n_out));    // members follow each other
    assert_int_equal(n_out, PLAIN + 100);
    assert_memory_equal(out, plain, PLAIN);
    assert_memory_equal(out + PLAIN, plain, 100);
    free(out);
    memset(packed + both, 0, 20);                               // zero padding, as tapes have it
    EXPECT_OK(gzip_unpack("f", packed, both + 20, &out, &n_out));
    free(out);
    packed[both + 19] = 1;
    expect_failure(gzip_unpack("f", packed, both + 20, &out, &n_out), ERR_FORMAT,
                   "f: bytes that are not gzip follow");
    // An extra field, which is how dictzip keeps its index.
    uint8_t extra[PLAIN + 200];
    memcpy(extra, packed, 10);
    extra[3] = 4;
    memcpy(extra + 10, "\x06\x00RA\x02\x00\x01\x02", 8);
    memcpy(extra + 18, packed + 10, n - 10);
    EXPECT_OK(gzip_unpack("f", extra, n + 8, &out, &n_out));
    assert_int_equal(n_out, PLAIN);
    assert_memory_equal(out, plain, PLAIN);
    free(out);
}

static void gzip_truncated_anywhere(void **state) {
    (void)state;
    size_t n = pack(), n_out;
    uint8_t *out;
    for (size_t cut = 0; cut < n; cut++) {
        // A copy of its own size, so that reading past the end is seen by the sanitizer.
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, packed, cut);
        char where[64];
        snprintf(where, sizeof where, "ends at offset %zu, inside a member", cut);
        expect_failure(gzip_unpack("f", copy, cut, &out, &n_out), ERR_FORMAT, where);
        free(copy);
    }
}

static void gzip_damaged_anywhere(void **state) {
    (void)state;
    size_t n = pack(), n_out;
    uint8_t *out;
    int refused = 0;
    for (size_t at = 0; at < n; at++) {
        packed[at] ^= 0x10;
        // Modification time, flags and system in the header, and spare bits of the last block, are
        // not data.
        if (gzip_unpack("f", packed, n, &out, &n_out) != OK) {
            refused++;
            assert_non_null(strstr(status_message(), "f: "));
        } else {
            assert_int_equal(n_out, PLAIN);
            assert_memory_equal(out, plain, PLAIN);
            free(out);
        }
        packed[at] ^= 0x10;
    }
    assert_true(refused >= (int)n - 9);
}

static void gzip_file(void **state) {
    (void)state;
    size_t n = pack();
    const char *paths[] = { file_of("text.gz", packed, n) };
    DataOptions options = over(paths, 1);
    Data *data;
    EXPECT_OK(data_open(&options, &data));
    assert_int_equal(data->train.n_targets, PLAIN - 1);
    int32_t tokens[4];
    data_tokens(&data->train, 5, 0, tokens);
    assert_int_equal(tokens[3], plain[23]);
    data_close(data);
    paths[0] = file_of("magic.gz", packed, 2);
    expect_failure(data_open(&options, &data), ERR_FORMAT, "magic.gz: its gzip data ends at off");
    paths[0] = file_of("cut.gz", packed, n - 5);
    expect_failure(data_open(&options, &data), ERR_FORMAT, "cut.gz: its gzip data ends at offset");
}

/* Order ---------------------------------------------------------------------------------------- */

static void order_is_a_bijection(void **state) {
    (void)state;
    static uint8_t seen[5000];
    const int64_t sizes[] = { 1,  2,   3,   4,   5,    15,   16,   17,  64,
                              65, 255, 256, 257, 1000, 4096, 4097, 5000 };
    for (int s = 0; s < COUNT_OF(sizes); s++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < sizes[s]; i++) {
                int64_t at = data_order(42, epoch, sizes[s], i);
                assert_true(at >= 0 && at < sizes[s]);
                assert_int_equal(seen[at]++, 0);
            }
        }
}

static void order_depends_on_seed_and_epoch(void **state) {
    (void)state;
    int same_seed = 0, same_epoch = 0, fixed = 0, neighbours = 0;
    for (int64_t i = 0; i < 1000; i++) {
        int64_t at = data_order(1, 0, 1000, i);
        same_seed += at == data_order(2, 0, 1000, i);
        same_epoch += at == data_order(1, 1, 1000, i);
        fixed += at == i;
        neighbours += data_order(1, 0, 1000, (i + 1) % 1000) == at + 1;
    }
    // One expected of each in a random permutation.
    assert_true(same_seed < 10 && same_epoch < 10 && fixed < 10 && neighbours < 10);
    DataSet set = { .n_sequences = 10 };
    int64_t sum = 0;
    for (int64_t i = 20; i < 30; i++) sum += data_sample(&set, 1, i); // the third epoch
    assert_int_equal(sum, 45);
    assert_int_equal(data_order(9, 3, 1, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_and_ends),
        cmocka_unit_test(held_out_is_invisible),
        cmocka_unit_test(uint16),
        cmocka_unit_test(uint32),
        cmocka_unit_test(numpy_arrays),
        cmocka_unit_test(numpy_truncated_anywhere),
        cmocka_unit_test(documents_end_at_eos),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(gzip_round_trip),
        cmocka_unit_test(gzip_truncated_anywhere),
        cmocka_unit_test(gzip_damaged_anywhere),
        cmocka_unit_test(gzip_file),
        cmocka_unit_test(order_is_a_bijection),
        cmocka_unit_test(order_depends_on_seed_and_epoch),
    };
    return cmocka_run_group_tests_name("data", tests, make, NULL);
}
