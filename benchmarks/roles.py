"""Exact distances to Sigma_3 over all (w, p): all heads at once against the obvious loop, one head at a time in NumPy.

    python benchmarks/roles.py [--heads 1000] [--tokens 32] [--looped 50] [--out benchmarks/roles.json]

One thread. The loop runs the same dynamic program, a head, a w, a row and a p at a time; it is timed on the first
heads and scaled up, and must find the same distances.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.diagnostics.structure import distances_to_blocks

REPEATS = 5


def main() -> None:
    """Measures both column variants and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--looped", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measure(options.heads, options.tokens, options.looped, any_column=any_column) for any_column in (False, True)
    ]
    load = [round(each, 1) for each in os.getloadavg()]
    content = {"benchmark": "roles", "name": platform.machine(), "load": load, "rows": rows}
    text = json.dumps(content, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def measure(n_heads: int, n_tokens: int, n_looped: int, *, any_column: bool) -> dict[str, object]:
    """Seconds for all heads, batched (the best of several) and looped (scaled up)."""
    generator = torch.Generator().manual_seed(0)
    heads = (3 * torch.randn(n_heads, n_tokens, n_tokens, generator=generator, dtype=torch.float64)).softmax(-1)
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        found = distances_to_blocks(heads, any_column=any_column)
        seconds.append(time.perf_counter() - started)
    started = time.perf_counter()
    looped = [one_head(head, any_column=any_column) for head in heads[:n_looped].numpy()]
    loop_seconds = (time.perf_counter() - started) * n_heads / len(looped)
    np.testing.assert_allclose(np.stack(looped), found[:n_looped].numpy(), atol=1e-10)
    return {
        "variant": "any column" if any_column else "first column",
        "heads": n_heads,
        "tokens": n_tokens,
        "batched_seconds": round(min(seconds), 3),
        "looped_seconds": round(loop_seconds, 2),
        "ratio": round(loop_seconds / min(seconds), 1),
    }


def one_head(head: NDArray[np.float64], *, any_column: bool) -> NDArray[np.float64]:
    """(T, T + 1) the distances of one head, at [w - 1, p]."""
    T = len(head)
    row_sum = head.sum(1, keepdims=True)
    cost = (row_sum - head) + np.abs(1.0 - head)
    saved = cost.diagonal()[:, None] - cost
    found = np.full((T, T + 1), np.inf)
    for w in range(1, T + 1):
        most = T // w
        best = np.full((T + 1, most + 1), -np.inf)
        best[:, 0] = 0.0
        for i in range(w, T + 1):
            start = i - w
            columns = range(start, i) if any_column else [start]
            gain = max(saved[start:i, column].sum() for column in columns)
            for p in range(1, most + 1):
                best[i, p] = max(best[i - 1, p], best[start, p - 1] + gain)
        found[w - 1, : most + 1] = cost.trace() - best[-1]
    return found


if __name__ == "__main__":
    main()
