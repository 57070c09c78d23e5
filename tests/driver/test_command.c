// SPDX-License-Identifier: Apache-2.0
// The `moec` command from spec to sample, on a small model: the same bits whatever the threads,
// after a resume, after a kill, and from the saved plan without the compiler.
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/small.h"

static char *runner; // $MOEC_RUNNER: of a build without the compiler (./dev test sets it)
static Small small;
static char *moec, *spec, *data, *reference;
static const char *folder;

static int train(char *run, char *const *more) {
    Small now = small;
    now.data = data;
    return small_train(&now, run, "6", more);
}
#define TRAIN(run, ...) train(run, (char *[]) { __VA_ARGS__, NULL })

static int make(void **state) {
    (void)state;
    static char beside[] = MOEC_BINARY_DIR "/moec-run";
    runner = getenv("MOEC_RUNNER") ? getenv("MOEC_RUNNER") : beside;
    small = small_make();
    folder = small.folder, moec = small.moec, spec = small.spec, data = small.data;
    reference = path_in(folder, "reference");
    expect_exit(0, train(reference, NULL));
    return 0;
}

// Output that is lost is a failure; closed streams lend their numbers to no file of the run.
static void streams(void **state) {
    (void)state;
    expect_exit(1, COMMAND("/bin/sh", "-c", "\"$0\" check \"$1\" >/dev/full", moec, spec));
    expect_error("the standard output cannot be written: No space left on device");
    expect_exit(1, COMMAND("/bin/sh", "-c", "\"$0\" --version >&-", moec));
    char *run = path_in(folder, "closed");
    const char *closed = "\"$0\" train \"$1\" --data \"$2\" --out \"$3\" --steps 1 --batch 128 "
                         "<&- >&- 2>&-";
    expect_exit(0, COMMAND("/bin/sh", "-c", (char *)closed, moec, spec, data, run));
    static const char *const whole[] = { "lock", "metrics.jsonl", "plan.txt" };
    for (int i = 0; i < COUNT_OF(whole); i++) {
        size_t n;
        char *text = read_whole(path_in(run, whole[i]), &n);
        assert_null(strstr(text, "compiling kernels"));
        assert_null(strstr(text, "saved in"));
    }
}

// A spec under an odd name trains, and the run keeps it under that name.
static void odd_names(void **state) {
    (void)state;
    static const char *const names[] = { "a..lua", "..lua", "a=b c.lua" };
    for (int i = 0; i < COUNT_OF(names); i++) {
        char *run = path_in(folder, "odd"), *own = path_in(folder, names[i]);
        write_file(own, small_spec, strlen(small_spec));
        const char *here = "cd \"$1\" && \"$0\" train \"./$2\" --data \"$3\" --out odd --steps 1 "
                           "--batch 128 && \"$0\" check \"$2\" && test -f \"odd/spec/$2\"";
        expect_exit(0, COMMAND("/bin/sh", "-c", (char *)here, moec, (char *)folder,
                               (char *)names[i], data));
        expect_exit(0, COMMAND("/bin/rm", "-r", run, own));
    }
}

static void threads_do_not_matter(void **state) {
    (void)state;
    char *const threads[] = { "1", "2", "3" };
    for (int i = 0; i < 3; i++) {
        char *run = path_in(folder, (const char *[]) { "one", "two", "three" }[i]);
        expect_exit(0, TRAIN(run, "--threads", threads[i]));
        same_state(reference, run, 6);
    }
    char *other = path_in(folder, "other"); // and the comparison sees a difference
    expect_exit(0, TRAIN(other, "--seed", "2"));
    size_t n;
    char *x = read_whole(path_in(other, "checkpoints/step-6/weights.safetensors"), &n);
    char *y = read_whole(path_in(reference, "checkpoints/step-6/weights.safetensors"), &n);
    assert_memory_not_equal(x, y, n);
}

static void resume_repeats_the_bits(void **state) {
    (void)state;
    char *run = path_in(folder, "resumed");
    expect_exit(0, TRAIN(run, "--keep", "5"));
    // As if it had been killed right after its checkpoint of step 3.
    expect_exit(0, COMMAND("/bin/rm", "-r", path_in(run, "checkpoints/step-6")));
    write_file(path_in(run, "checkpoints/latest"), "step-3\n", 7);
    expect_exit(0, COMMAND(moec, "resume", run, "--threads", "1"));
    expect_error("from step-3");
    same_state(reference, run, 6);
    size_t n;
    const char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
    for (int step = 1; step <= 6; step++, line = strchr(line, '\n') + 1) {
        char start[32];
        snprintf(start, sizeof start, "{\"step\":%d,", step);
        assert_int_equal(strncmp(line, start, strlen(start)), 0);
    }
    assert_string_equal(line, "");
}

static void killed_and_resumed(void **state) {
    (void)state;
    char *run = path_in(folder, "killed"), *metrics = path_in(run, "metrics.jsonl");
    char *argv[] = { moec,  "train",    spec, "--data",  data,  "--held-out",
                     "700", "--steps",  "6",  "--batch", "256", "--microbatch",
                     "128", "--warmup", "2",  "--out",   run,   NULL };
    int null = open("/dev/null", O_WRONLY);
    pid_t child = command_start(argv, null, null);
    struct stat info;
    int status;
    bool ended = false;
    for (int i = 0; i < 60000 && !ended && (stat(metrics, &info) < 0 || !info.st_size); i++) {
        usleep(1000);
        ended = waitpid(child, &status, WNOHANG) == child;
    }
    assert_false(ended);
    kill(child, SIGINT);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(null);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0) { // 0: it was faster than the signal
        assert_int_equal(WEXITSTATUS(status), 1);
        expect_exit(0, COMMAND(moec, "resume", run));
    }
    same_state(reference, run, 6);
}

static void saved_plan_without_the_compiler(void **state) {
    (void)state;
    char *run = path_in(folder, "runner");
    expect_exit(0, COMMAND(runner, path_in(reference, "plan.txt"),
                           path_in(reference, "plan-sample.txt"), "--data", data, "--held-out",
                           "700", "--steps", "6", "--warmup", "2", "--out", run));
    same_state(reference, run, 6);
    size_t n, m;
    char *a = read_whole(path_in(run, "plan.txt"), &n),
         *b = read_whole(path_in(reference, "plan.txt"), &m);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    expect_exit(0, COMMAND(moec, "sample", reference, "--bytes", "8", "--seed", "3"));
    char *sample = strdup(command_output());
    expect_exit(0, COMMAND(runner, "sample", run, "--bytes", "8", "--seed", "3"));
    assert_string_equal(sample, command_output());
    free(sample);
}

static void evaluates_and_samples(void **state) {
    (void)state;
    size_t n;
    char *evals = read_whole(path_in(reference, "eval.jsonl"), &n);
    json_t *last = json_loads(evals, 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(last, "eval/tokens")), 700);
    expect_exit(0, COMMAND(moec, "eval", reference, "--quiet"));
    double bits = strtod(command_output(), NULL);
    double trained = json_real_value(json_object_get(last, "eval/bits per token"));
    assert_true(bits > trained - 6e-5 && bits < trained + 6e-5); // four digits of the same number
    assert_true(bits < 8.5);
    json_decref(last);
    expect_exit(0, COMMAND(moec, "sample", reference, "--prompt", "pack", "--bytes", "40",
                           "--temperature", "0"));
    assert_int_equal(strncmp(command_output(), "pack", 4), 0);
    char *once = strdup(command_output());
    expect_exit(0, COMMAND(moec, "sample", reference, "--prompt", "pack", "--bytes", "40",
                           "--temperature", "0", "--seed", "9", "--threads", "1"));
    assert_string_equal(once, command_output()); // the likeliest does not depend on a seed
    free(once);
    assert_true(file_exists(path_in(reference, "spec/small.lua")));
}

static void data_formats(void **state) {
    (void)state;
    size_t n;
    char *text = read_whole(data, &n);
    static uint8_t packed[20000], ids[20000];
    char *zipped = path_in(folder, "data.gz"), *tokens = path_in(folder, "ids");
    write_file(zipped, packed, gzip_bytes(text, n, packed, sizeof packed));
    for (size_t i = 0; i < n; i++) ids[2 * i] = (uint8_t)text[i], ids[2 * i + 1] = 0;
    write_file(tokens, ids, 2 * n);
    char *a = path_in(folder, "from-gzip"), *b = path_in(folder, "from-ids");
    char *plain = data;
    data = zipped;
    expect_exit(0, train(a, NULL));
    same_state(reference, a, 6);
    data = tokens;
    expect_exit(0, TRAIN(b, "--tokens", "uint16"));
    same_state(reference, b, 6);
    static uint8_t wide[4 * SMALL_DATA + 128];
    for (size_t i = 0; i < n; i++) wide[128 + 4 * i] = (uint8_t)text[i];
    char *file = path_in(folder, "wide"), *c = path_in(folder, "from-wide"),
         *d = path_in(folder, "from-npy");
    data = file;
    write_file(file, wide + 128, 4 * n);
    expect_exit(0, TRAIN(c, "--tokens", "uint32"));
    same_state(reference, c, 6);
    memcpy(wide, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(wide + 10, ' ', 118);
    int used = sprintf((char *)wide + 10,
                       "{'descr': '<u4', 'fortran_order': False, 'shape': (%d,), }", SMALL_DATA);
    wide[10 + used] = ' ', wide[127] = '\n';
    write_file(file, wide, 4 * n + 128);
    expect_exit(0, TRAIN(d, "--tokens", "uint32"));
    same_state(reference, d, 6);
    expect_exit(2, TRAIN(path_in(folder, "bad"), "--tokens", "uint16"));
    expect_error("hint: --tokens uint32");
    data = tokens;
    ids[4001] = 1; // 256 + something at token 2000
    write_file(tokens, ids, 2 * n);
    expect_exit(2, TRAIN(path_in(folder, "bad"), "--tokens", "uint16"));
    data = plain;
    expect_error("at offset 4000, but the model's vocabulary is 256");
}

static double perplexity(void) {
    const char *at = strstr(command_output(), "perplexity ");
    assert_non_null(at);
    return strtod(at + 11, NULL);
}

// Two documents in one sequence are worth what they are worth in a sequence each: attention,
// positions and targets keep them apart.
static void documents_do_not_see_each_other(void **state) {
    (void)state;
    char *run = path_in(folder, "documents");
    expect_exit(0, TRAIN(run, "--eos", "10")); // a document is a line
    static const char packed[] = "five jugs\npack my box\nwith five\n";
    char *together = path_in(folder, "together"), *parts[3];
    write_file(together, packed, 32);
    const char *at = packed;
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(at, "\n") + 1;
        parts[i] = path_in(folder, (const char *[]) { "line-1", "line-2", "line-3" }[i]);
        write_file(parts[i], at, n);
        at += n;
    }
    expect_exit(0, COMMAND(moec, "eval", run, "--eval-data", together));
    assert_non_null(strstr(command_output(), "over 29 bytes")); // a document's first is no target
    double whole = perplexity();
    expect_exit(0, COMMAND(moec, "eval", run, "--eval-data", parts[0], parts[1], parts[2]));
    assert_non_null(strstr(command_output(), "over 29 bytes"));
    assert_true(whole > 100 && fabs(perplexity() - whole) < 0.0015); // its last digit
    expect_exit(0, COMMAND(moec, "eval", reference, "--eval-data", together)); // no ends: one
    assert_non_null(strstr(command_output(), "over 31 bytes"));
}

// The metric of line `step`, NAN where it is null.
static double metric_of(const char *run, int step, const char *name) {
    size_t n;
    char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
    for (int i = 1; i < step; i++) line = strchr(line, '\n') + 1;
    json_t *object = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    const json_t *value = json_object_get(object, name);
    if (!value) print_error("no %s\n", name);
    assert_non_null(value);
    double number = json_is_null(value) ? NAN : json_number_value(value);
    json_decref(object);
    return number;
}

// "train/block 02/load" -> "`train/block NN/load`", as the page has it.
static void page_name(const char *key, char out[128]) {
    const char *digits = strpbrk(key, "0123456789");
    bool block = digits && !strncmp(key, "train/block ", 12),
         group = digits && strstr(key, "(group ");
    if (block) snprintf(out, 128, "`train/block NN%s`", strchr(digits, '/'));
    else if (group) snprintf(out, 128, "`%.*sN)`", (int)(digits - key), key);
    else snprintf(out, 128, "`%s`", key);
    char *unscaled = strstr(out, " unscaled`");
    if (unscaled) strcpy(unscaled, "`");
}

static void every_metric_is_on_the_page(void **state) {
    (void)state;
    size_t n;
    const char *page = read_whole(MOEC_SOURCE_DIR "/docs/run.md", &n);
    static const char *const files[] = { "metrics.jsonl", "eval.jsonl" };
    for (int i = 0; i < 2; i++) {
        json_t *line = json_loads(read_whole(path_in(reference, files[i]), &n),
                                  JSON_DISABLE_EOF_CHECK, NULL), *value;
        assert_non_null(line);
        const char *key;
        json_object_foreach(line, key, value) {
            char name[128];
            page_name(key, name);
            if (!strstr(page, name)) print_error("docs/run.md lacks %s\n", name);
            assert_non_null(strstr(page, name));
        }
        json_decref(line);
    }
}

static void metrics_have_their_names(void **state) {
    (void)state;
    char *run = path_in(folder, "metrics");
    expect_exit(0, TRAIN(run, "--peak", "50", "--held-out", "0"));
    for (int step = 1; step <= 6; step++) {
        double loss = metric_of(run, step, "train/CE loss");
        assert_true(fabs(metric_of(run, step, "train/PPL") / exp(loss) - 1) < 1e-6);
        double balance = metric_of(run, step, "train/load balancing loss");
        assert_true(fabs(metric_of(run, step, "train/total loss") - loss - balance) < 1e-6);
        assert_true(metric_of(run, step, "train/block 02/load balancing loss") == balance);
        double uneven = metric_of(run, step, "train/block 02/load imbalance");
        assert_true(uneven >= 1 && uneven <= 2); // of 4 experts, 2 of which a token has
        assert_true(metric_of(run, step, "train/block 02/dropped") == 0);
        assert_true(metric_of(run, step, "optim/LR (group 1)") > 0);
        // MFU is speed times the model's FLOPs over the peak: the same ratio at every step.
        double ratio = metric_of(run, step, "throughput/device/MFU") /
                       metric_of(run, step, "throughput/device/TPS");
        double first = metric_of(run, 1, "throughput/device/MFU") /
                       metric_of(run, 1, "throughput/device/TPS");
        assert_true(ratio > 0 && fabs(ratio / first - 1) < 1e-6);
    }
    expect_error("group 0: ");
    expect_error("weight decay 0.1");
    assert_true(file_exists(path_in(run, "loss.svg")));
}

// A token that makes a gradient infinite: the kernels skip its steps, and training goes on.
static void skipped_steps(void **state) {
    (void)state;
    static const char text[] =
        "local m = require \"moec\"\n"
        "return m.model {\n"
        "  name = \"trap\", vocab = 256, width = 32, sequence = 32,\n"
        "  layers = m.stack(1, m.block {\n"
        "    attention = { heads = 2, rope = true },\n"
        "    ffn = function(x)\n"
        "      local wild = m.exp(m.where(m.eq(m.tokens(), 7), 1000, 0))\n"
        "      m.loss(\"trap\", m.sum(x) * wild, 1e-6)\n"
        "      return m.linear(\"out\", x, 32)\n"
        "    end,\n"
        "  }),\n"
        "}\n";
    char *trap = path_in(folder, "trap.lua"), *run = path_in(folder, "trap"),
         *file = path_in(folder, "trap-data");
    static char bytes[1025];
    for (int i = 0; i < 1025; i++) bytes[i] = (char)('a' + i % 10);
    bytes[500] = 7;
    write_file(trap, text, sizeof text - 1);
    write_file(file, bytes, sizeof bytes);
    expect_exit(0, COMMAND(moec, "train", trap, "--data", file, "--out", run, "--steps", "12",
                           "--batch", "256")); // 32 sequences: an epoch is 4 steps
    expect_error("trained 12 steps (3 skipped)");
    int skipped = 0;
    for (int step = 1; step <= 12; step++) {
        int now = metric_of(run, step, "optim/step skipped") == 1;
        assert_int_equal(now, isnan(metric_of(run, step, "optim/total grad norm")));
        skipped += now;
        assert_true(metric_of(run, step, "optim/steps skipped") == skipped);
        assert_false(isnan(metric_of(run, step, "train/CE loss"))); // the weights stay finite
    }
    assert_int_equal(skipped, 3);
}

static void accumulation_is_the_sum(void **state) {
    (void)state;
    // One microbatch of 256 against two of 128: other bits, the same losses to rounding. The
    // balance loss is nonlinear in its microbatch, so it is left out.
    char *text = strdup(small_spec), *at = strstr(text, "balance_loss = 0.01, ");
    memset(at, ' ', strlen("balance_loss = 0.01,"));
    char *plain = path_in(folder, "plain.lua");
    write_file(plain, text, strlen(text));
    free(text);
    double losses[2][6];
    for (int i = 0; i < 2; i++) {
        char *run = path_in(folder, i ? "whole-batch" : "two-halves");
        expect_exit(0, COMMAND(moec, "train", plain, "--data", data, "--out", run, "--steps", "6",
                               "--batch", "256", "--microbatch", i ? "256" : "128"));
        size_t n;
        char *line = read_whole(path_in(run, "metrics.jsonl"), &n);
        for (int step = 0; step < 6; step++, line = strchr(line, '\n') + 1) {
            json_t *object = json_loadb(line, (size_t)(strchr(line, '\n') - line), 0, NULL);
            losses[i][step] = json_real_value(json_object_get(object, "train/CE loss"));
            json_decref(object);
        }
    }
    for (int step = 0; step < 6; step++) {
        double ratio = losses[0][step] / losses[1][step];
        assert_true(ratio > 1 - 1e-4 && ratio < 1 + 1e-4);
    }
}

static int count_entries(const char *path) {
    DIR *open = opendir(path);
    assert_non_null(open);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(open));) n += entry->d_name[0] != '.';
    closedir(open);
    return n;
}

static void wrong_commands(void **state) {
    (void)state;
    char *run = path_in(folder, "wrong"), *broken = path_in(folder, "broken.lua");
    expect_exit(2, COMMAND(moec));
    expect_error("moec COMMAND --help");
    expect_exit(0, COMMAND(moec, "--help"));
    expect_exit(0, COMMAND(moec, "--version"));
    assert_string_equal(command_output(), "moec " MOEC_VERSION "\n");
    expect_exit(2, COMMAND(moec, "--version", "x"));
    expect_error("unexpected 'x' after --version");
    expect_exit(2, COMMAND(moec, "help", "check", "x"));
    expect_error("unexpected 'x' after help");
    expect_exit(2, COMMAND(moec, "help", "chekc"));
    expect_error("unknown command 'chekc'");
    expect_exit(0, COMMAND(moec, "help", "check"));
    assert_non_null(strstr(command_output(), "every parameter with its shape"));
    expect_exit(0, COMMAND(moec, "plan", "--microbatch=64", "--", spec));
    assert_non_null(strstr(command_output(), ", 64 tokens in sequences of 32,"));
    expect_exit(2, COMMAND(moec, "plan", "--microbatch=", spec));
    expect_error("--microbatch is '', expected a whole number of tokens");
    expect_exit(2, COMMAND(moec, "plan", "--microbach=64", spec));
    expect_error("unknown option '--microbach' of 'plan'\n  hint: did you mean --microbatch");
    expect_exit(2, COMMAND(moec, "trian"));
    expect_error("moec: error: unknown command 'trian'\n  hint: did you mean 'moec train'?");
    expect_exit(0, COMMAND(moec, "train", "--help"));
    assert_non_null(strstr(command_output(), "--min-lr FRACTION"));
    assert_null(strstr(command_output(), "--top-p"));
    expect_exit(2, COMMAND(moec, "train"));
    expect_error("no SPEC given");
    expect_exit(2, COMMAND(moec, "train", spec, "x", "--data", data, "--out", run, "--steps", "1"));
    expect_error("unexpected 'x': after SPEC come key=value arguments");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", data, "--steps", "1"));
    expect_error("no place for the run");
    expect_exit(2, COMMAND(moec, "train", spec, "--out", run, "--steps", "1"));
    expect_error("no training data");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", data, "--out", run));
    expect_error("no end to the run");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", data, "--out", run, "--steps", "1",
                           "--batch", "100"));
    expect_error("--batch is 100 tokens, expected a multiple of the sequence of 32");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", data, "--out", run, "--steps", "1",
                           "--microbatch", "33"));
    expect_error("--microbatch is 33 tokens, expected a multiple of the sequence of 32");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", data, "--out", run, "--steps", "1",
                           "--batch", "96", "--microbatch", "64"));
    expect_error("--batch is 96 tokens, expected a multiple of the microbatch of 64");
    expect_exit(2, TRAIN(run, "--batch", "137438953536", "--microbatch", "32")); // 2^32 + 2 of them
    expect_error("4294967298 microbatches of 32, expected up to 1000000\n  hint: a smaller");
    expect_exit(2, COMMAND(moec, "train", spec, "--data", path_in(folder, "none"), "--out", run,
                           "--steps", "1"));
    expect_error("cannot open the data file");
    expect_exit(
        2, COMMAND(moec, "train", spec, "widht=16", "--data", data, "--out", run, "--steps", "1"));
    expect_error("widht");
    write_file(broken, "return 1 +\n", 11);
    expect_exit(2, COMMAND(moec, "train", broken, "--data", data, "--out", run, "--steps", "1"));
    expect_error("broken.lua:");
    assert_false(file_exists(run)); // none of these left anything behind
    // What shows only when the kernels are compiled leaves nothing either, but what was there.
    char *deep = path_in(folder, "new/deep/run"), *old = path_in(folder, "old"), *kept = path_in(old, "notes");
    assert_int_equal(mkdir(old, 0755), 0);
    write_file(kept, "mine", 4);
    char *const places[] = { deep, old };
    const char *compiler = getenv("MOEC_CC") ? getenv("MOEC_CC") : "";
    char *before = strdup(compiler);
    setenv("MOEC_CC", "/nowhere/cc", 1);
    for (int i = 0; i < COUNT_OF(places); i++) {
        expect_exit(1, COMMAND(moec, "train", spec, "--data", data, "--out", places[i], "--steps", "1"));
        expect_error("found no program \"/nowhere/cc\"");
    }
    if (*before) setenv("MOEC_CC", before, 1);
    else unsetenv("MOEC_CC");
    free(before);
    assert_false(file_exists(path_in(folder, "new")));
    assert_true(file_exists(kept));
    assert_int_equal(count_entries(old), 1);
    expect_exit(2,
                COMMAND(moec, "train", spec, "--data", data, "--out", reference, "--steps", "1"));
    expect_error("already holds a run\n  hint: 'moec resume ");
    char *bare = path_in(folder, "bare");
    expect_exit(0, COMMAND("/bin/cp", "-r", reference, bare));
    expect_exit(0, COMMAND("/bin/rm", path_in(bare, "plan-sample.txt")));
    expect_exit(2, COMMAND(moec, "sample", bare));
    expect_error("has no plan with a program 'prefill', which sampling runs\n  hint: 'moec train'");
    expect_exit(2, COMMAND(moec, "resume", reference, "--seed", "5"));
    expect_error("--seed is fixed for the life of a run");
    expect_exit(2, COMMAND(moec, "eval", path_in(folder, "")));
    expect_error("is not the folder of a run");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams),
        cmocka_unit_test(odd_names),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(resume_repeats_the_bits),
        cmocka_unit_test(killed_and_resumed),
        cmocka_unit_test(saved_plan_without_the_compiler),
        cmocka_unit_test(evaluates_and_samples),
        cmocka_unit_test(data_formats),
        cmocka_unit_test(documents_do_not_see_each_other),
        cmocka_unit_test(every_metric_is_on_the_page),
        cmocka_unit_test(metrics_have_their_names),
        cmocka_unit_test(skipped_steps),
        cmocka_unit_test(accumulation_is_the_sum),
        cmocka_unit_test(wrong_commands),
    };
    return cmocka_run_group_tests_name("command", tests, make, NULL);
}
