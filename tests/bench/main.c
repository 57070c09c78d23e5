// SPDX-License-Identifier: Apache-2.0
// moec-bench [--quick] [--json FILE] [--peer] [--threads N] [--only SECTIONS] [--match TEXT] [--huge-pages]
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"

static const char usage[] =
    "moec-bench: kernels and training steps against the limits of this machine\n"
    "\n"
    "  --quick            fewer sizes and rounds, steps of one small microbatch; under two minutes\n"
    "  --json FILE        write the figures\n"
    "  --peer             PyTorch's or NumPy's matrix products beside ours, if python3 has them\n"
    "  --threads N        default: all cores\n"
    "  --only SECTIONS    of gemm,attention,rows,step,start\n"
    "  --match TEXT       of gemm, rows and step only lines like \"wgrad fp32 32\" that hold TEXT\n"
    "  --huge-pages       operands of single kernels in huge pages, as the executor asks for\n"
    "\n"
    "Run it in the folder of the sources; it reads models/bench_cpu.lua and models/tiny.lua.\n";

static const struct {
    const char *name;
    void (*run)(Bench *bench);
} sections[] = {{"start", start_section}, {"gemm", gemm_section}, {"attention", attend_section},
                {"rows", rows_section},   {"step", step_section}};

static const char *value_of(int argc, char **argv, int *i) {
    if (++*i < argc) return argv[*i];
    fprintf(stderr, "moec-bench: %s: expected a value after it\n", argv[*i - 1]);
    exit(2);
}

static void read_args(Bench *bench, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        if (!strcmp(flag, "--quick"))
            bench->quick = true;
        else if (!strcmp(flag, "--peer"))
            bench->peer = true;
        else if (!strcmp(flag, "--huge-pages"))
            bench->huge_pages = true;
        else if (!strcmp(flag, "--json"))
            bench->json = value_of(argc, argv, &i);
        else if (!strcmp(flag, "--only"))
            bench->only = value_of(argc, argv, &i);
        else if (!strcmp(flag, "--match"))
            bench->match = value_of(argc, argv, &i);
        else if (!strcmp(flag, "--threads"))
            bench->threads = atoi(value_of(argc, argv, &i));
        else {
            bool help = !strcmp(flag, "--help") || !strcmp(flag, "-h");
            if (!help) fprintf(stderr, "moec-bench: unknown option %s\n\n", flag);
            fputs(usage, help ? stdout : stderr);
            exit(help ? 0 : 2);
        }
    }
}

static bool wanted(const Bench *bench, const char *section) {
    if (!bench->only) return true;
    size_t n = strlen(section);
    for (const char *at = bench->only; *at;) {
        size_t word = strcspn(at, ",");
        if (word == n && !strncmp(at, section, n)) return true;
        at += word + (at[word] == ',');
    }
    return false;
}

bool line_wanted(const Bench *bench, const char *format, ...) {
    char name[128];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    return !bench->match || strstr(name, bench->match);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--start")) return start_child(argv[2]);
    char self[4096] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) give_up("this system has no /proc");
    Bench bench = {.self = self};
    double begin = time_seconds();
    read_args(&bench, argc, argv);
    must(pool_create(bench.threads, &bench.pool));
    bench.threads = pool_threads(bench.pool);
    report_open(&bench.report);
    limit_open(&bench);
    limit_section(&bench);
    for (int i = 0; i < COUNT_OF(sections); i++)
        if (wanted(&bench, sections[i].name)) sections[i].run(&bench);
    if (bench.peer) peer_section(&bench);
    printf("\n");
    report_fact(&bench.report, "quick", TEXT(bench.quick ? "yes" : "no"));
    report_fact(&bench.report, "seconds", NUMBER(time_seconds() - begin));
    if (bench.json) must(report_write(&bench.report, bench.json));
    report_close(&bench.report);
    limit_close(&bench);
    pool_destroy(bench.pool);
    return 0;
}
