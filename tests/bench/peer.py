# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMM of tests/bench/gemm.c by PyTorch (oneDNN) or, without it, NumPy.

Prints "LIBRARY PRODUCT TYPE ROWS SECONDS FLOPS" per measurement, and a sentence for what is missing.
The faster of a loop of products and one batched product counts; weights alternate between two sets.
"""
import argparse
import os
import sys
import time

EXPERTS, WIDTH = 32, 1024


def best(run, budget):
    run(0)
    fastest, start, turn = float("inf"), time.perf_counter(), 0
    while turn < 5 or (time.perf_counter() - start < budget and turn < 64):
        turn += 1
        before = time.perf_counter()
        run(turn % 2)
        fastest = min(fastest, time.perf_counter() - before)
    return fastest


def torch_rows(torch, sizes, budget):
    name = "torch-" + torch.__version__
    for text, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        weights = [torch.rand(EXPERTS, WIDTH, WIDTH).sub_(0.5).to(kind) for _ in range(2)]
        for rows in sizes:
            x = torch.rand(EXPERTS, rows, WIDTH).sub_(0.5).to(kind)
            g = torch.rand(EXPERTS, rows, WIDTH).sub_(0.5).to(kind)
            products = {
                "forward": (lambda a, w: a @ w, lambda s: (x, weights[s])),
                "dgrad": (lambda a, w: a @ w.transpose(-1, -2), lambda s: (g, weights[s])),
                "wgrad": (lambda a, b: a.transpose(-1, -2) @ b, lambda s: (x, g)),
            }
            for product, (multiply, operands) in products.items():
                def loop(s):
                    a, b = operands(s)
                    for e in range(EXPERTS):
                        multiply(a[e], b[e])

                seconds = min(best(lambda s: multiply(*operands(s)), budget), best(loop, budget))
                print(name, product, text, rows, seconds, 2 * EXPERTS * rows * WIDTH * WIDTH, flush=True)


def numpy_rows(numpy, sizes, budget):
    name = "numpy-" + numpy.__version__
    random = numpy.random.default_rng(1)
    weights = [random.random((EXPERTS, WIDTH, WIDTH), dtype=numpy.float32) - 0.5 for _ in range(2)]
    for rows in sizes:
        x = random.random((EXPERTS, rows, WIDTH), dtype=numpy.float32) - 0.5

        def loop(s):
            for e in range(EXPERTS):
                x[e] @ weights[s][e]

        print(name, "forward", "fp32", rows, best(loop, budget), 2 * EXPERTS * rows * WIDTH * WIDTH, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes, budget = ((32, 128), 0.2) if options.quick else ((8, 32, 128, 512), 1.0)
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)
    try:
        import torch
    except ImportError:
        print("python3 at", sys.executable, "has no torch, so there are no oneDNN figures")
    else:
        torch.set_num_threads(options.threads)
        with torch.no_grad():
            return torch_rows(torch, sizes, budget)
    try:
        import numpy
    except ImportError:
        print("python3 at", sys.executable, "has no numpy, so there are no figures of its BLAS")
    else:
        numpy_rows(numpy, sizes, budget)


main()
