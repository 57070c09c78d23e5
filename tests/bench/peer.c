// SPDX-License-Identifier: Apache-2.0
// The same grouped products by what Python has at hand (peer.py): PyTorch with oneDNN, or NumPy.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/bench.h"

// One line of peer.py: "LIBRARY PRODUCT TYPE ROWS SECONDS FLOPS", words without blanks.
static bool peer_row(Bench *bench, const char *line) {
    char library[64], product[32], type[16];
    double rows, seconds, flops;
    if (sscanf(line, "%63s %31s %15s %lf %lf %lf", library, product, type, &rows, &seconds, &flops) != 6)
        return false;
    Limit limit = strcmp(type, "bf16") ? LIMIT_FP32 : LIMIT_BF16;
    report_row(&bench->report,
               (Cell[]){TEXT(library), TEXT(product), TEXT(type), NUMBER(rows), NUMBER(seconds * 1e3),
                        NUMBER(flops / seconds / 1e9), NUMBER(100 * flops / seconds / bench->best[limit])});
    return true;
}

void peer_section(Bench *bench) {
    static const Column columns[] = {
        {"library", "library", -24, 0}, {"product", "product", -8, 0}, {"precision", "type", -5, 0},
        {"rows", "rows/expert", 11, 0}, {"ms", "ms", 9, 3},            {"gflops", "GFLOP/s", 9, 1},
        {"best", "% best", 7, 1},
    };
    for (int i = 0; i < 10; i++) limit_measure(bench, LIMIT_FP32), limit_measure(bench, LIMIT_BF16);
    report_section(&bench->report, "peer", "Other libraries, the same grouped GEMM", columns,
                   COUNT_OF(columns));
    Text command = {0};
    text_printf(&command, "python3 tests/bench/peer.py --threads %d%s 2>&1", bench->threads,
                bench->quick ? " --quick" : "");
    FILE *child = popen(text_cstr(&command), "r");
    text_finish(&command);
    char line[512];
    int rows = 0;
    while (child && fgets(line, sizeof line, child)) {
        line[strcspn(line, "\n")] = 0;
        if (peer_row(bench, line))
            rows++;
        else
            report_note(&bench->report, "peer: %s", line);
    }
    int status = child ? pclose(child) : -1;
    if (status && !rows) report_note(&bench->report, "peer: python3 did not run");
}
