"""Fused packs of the full category-pairs models against a plain PyTorch loop, at the size of the paper.

    python benchmarks/category_pairs.py [--device cpu|cuda] [--variants solution_3 ...] [--dtypes float32 float64]
        [--sizes 4 8 16 32] [--out benchmarks/category_pairs.json]

N = 10, M = 50, 1,000 texts, 50 iterations of L-BFGS with strong-Wolfe search; all trainings run to the end. The peer is
what one would write from the paper: `torch.optim.LBFGS` on one training after the other, with dense one-hot token
matrices. Its form `whole` has k, q and v padded to N + M rows, as printed; `blocks` has only the rows that they see.
Both sides start from the same values and texts. Our time includes building the pack and all its probes (test loss,
matches, ablation, head scores); the peer has no probes. On the CPU each number is measured in fresh processes, with one
thread each if there are several. On all cores the peer counts with its threads or its processes, whichever is faster.
A pack's evaluations are counted by lane. Systems P and C, with the exact population loss, are measured as in
`fusion.py`. On CUDA `fp32_share` is the rate of matrix products in our evaluations, over the rate of one big product.
"""

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import fusion
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, one_hot, pad
from torch.utils.flop_counter import FlopCounterMode

from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import FULL_VARIANTS, CategoryPairsParameters
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings
from attnsweep.workloads.engine.shape_programs import Programs
from attnsweep.workloads.testing import defaults

WORKLOAD = CategoryPairs()
N_CATEGORIES, N_POSITIONS, N_TEXTS, N_STEPS = 10, 50, 1000, 50
PEERS = ["whole", "blocks"]
PEER_TRAININGS = 2
"""Trainings of the peer in each process; its seconds per training are their mean."""
REDUCED_SIZES = [128, 256, 512]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The trainings of one process.

    Attributes:
        side: `pack` for the vmapped engine, `compiled` for the engine of blocks, or a form of the peer: `whole`,
            `blocks`.
        n_trainings: Trainings, in one pack or one after the other.
        first_seed: The seed of the first training; the others count up from it.
    """

    side: str
    variant: str
    dtype: str
    device: str
    n_trainings: int
    n_threads: int = 1
    first_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Work:
    """The measurements of one process: times (`time.monotonic`, one clock for all processes) and work done.

    Attributes:
        cpu_seconds: CPU time of all its threads; unlike wall time, hardly affected by other load on the machine.
    """

    started: float
    ended: float
    cpu_seconds: float
    evaluations: int
    losses: list[float]


def main() -> None:
    """Measures all variants and prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--variants", nargs="*", choices=FULL_VARIANTS, default=["solution_3"])
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32", "float64"])
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    on_cuda = options.device == "cuda"
    sizes = options.sizes or ([64, 128, 256, 512] if on_cuda else [4, 8, 16, 32])
    load_before = os.getloadavg()
    rows = [_row(variant, dtype, options.device, sizes) for variant in options.variants for dtype in options.dtypes]
    torch.set_num_threads(1)
    reduced = [
        fusion.measure(variant, options.device, REDUCED_SIZES) for variant in ("positions_only", "categories_only")
    ]
    report = {
        "benchmark": "category_pairs",
        "device": options.device,
        "name": torch.cuda.get_device_name() if on_cuda else platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": {"before": load_before, "after": os.getloadavg()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "full_models": rows,
        "reduced_systems": reduced,
    }
    text = json.dumps(report, indent=2)
    if options.out is not None:
        options.out.write_text(text + "\n")
    print(text)


def _row(variant: str, dtype: str, device: str, sizes: list[int]) -> dict[str, Any]:
    """One variant: the peer in all its forms, and packs of all sizes."""
    cores = 1 if device == "cuda" else os.cpu_count() or 1

    def job(side: str, n_trainings: int, n_threads: int = 1) -> Job:
        return Job(side=side, variant=variant, dtype=dtype, device=device, n_trainings=n_trainings, n_threads=n_threads)

    def both(side: str, n_trainings: int) -> dict[str, dict[str, Any]]:
        """On one core, and on all: one process, or for the peer also one thread, per core."""
        figures = {"one_core": _measured(job(side, n_trainings), 1)}
        if cores > 1:
            figures["all_cores"] = _measured(job(side, n_trainings), cores)
        if cores > 1 and side in PEERS:
            figures["all_threads"] = _measured(job(side, n_trainings, cores), 1)
        return figures

    # In the combined model k, q and v see all rows: both forms are the same.
    peers = {side: both(side, PEER_TRAININGS) for side in (PEERS[:1] if variant == "combined" else PEERS)}
    engines = ["pack"] if device == "cuda" else ["pack", "compiled"]
    packs = {f"{side} of {size}": both(side, size) for size in sizes for side in engines}
    for figures in packs.values():
        for share, figure in figures.items():
            for side, of_peer in peers.items():
                forms = [of_peer["one_core"]] if share == "one_core" else list(of_peer.values())
                for key in ("seconds_per_training", "seconds_per_evaluation", "cpu_seconds_per_training"):
                    figure[f"times_{side}_{key}"] = _rounded(min(form[key] for form in forms) / figure[key])
            if device == "cuda":
                flops = _flops_of_evaluation(job("pack", 1)) / figure["seconds_per_evaluation"]
                figure["fp32_share"] = _rounded(flops / _fp32_flops())
    return {"variant": variant, "dtype": dtype, "peer": peers, "packs": packs}


def _measured(job: Job, n_processes: int) -> dict[str, Any]:
    """Wall seconds per training and per evaluation, with this number of processes at once."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(n_processes)
    jobs = [replace(job, first_seed=job.n_trainings * index) for index in range(n_processes)]
    with ProcessPoolExecutor(n_processes, context, _share, (barrier,)) as pool:
        done = list(pool.map(_train, jobs))
    seconds = max(work.ended for work in done) - min(work.started for work in done)
    losses = [loss for work in done for loss in work.losses]
    evaluations = sum(work.evaluations for work in done)
    print(f"{job}, {n_processes} processes: {seconds / len(losses):.3g} s a training", file=sys.stderr)
    return {
        "seconds_per_training": _rounded(seconds / len(losses)),
        "seconds_per_evaluation": _rounded(seconds / evaluations),
        "cpu_seconds_per_training": _rounded(sum(work.cpu_seconds for work in done) / len(losses)),
        "evaluations_per_training": _rounded(evaluations / len(losses)),
        "first_two_losses": [_rounded(loss) for loss in losses[:2]],
    }


_start_line: Barrier
"""The barrier at which the processes of one measurement wait for each other."""


def _share(barrier: Barrier) -> None:
    global _start_line
    _start_line = barrier


def _train(job: Job) -> Work:
    torch.set_num_threads(job.n_threads)
    train = _train_one_by_one if job.side in PEERS else training_settings()(_train_pack)
    train(replace(job, n_trainings=2), 1)
    _start_line.wait(timeout=300)
    started, cpu_seconds = time.monotonic(), time.process_time()
    losses, evaluations = train(job, N_STEPS)
    ended, cpu_seconds = time.monotonic(), time.process_time() - cpu_seconds
    return Work(started=started, ended=ended, cpu_seconds=cpu_seconds, evaluations=evaluations, losses=losses)


def _trainings(job: Job, n_steps: int) -> list[Training[CategoryPairsParameters]]:
    parameters = defaults(
        WORKLOAD,
        variant=job.variant,
        n_categories=N_CATEGORIES,
        n_positions=N_POSITIONS,
        batch_size=N_TEXTS,
        expectation="fixed_sample",
        init_sigma=None,
        dtype=job.dtype,
        optimizer="lbfgs",
        learning_rate=1.0,
        n_steps=n_steps,
        stop_when_solved=False,
    )
    return [Training(parameters, job.first_seed + index) for index in range(job.n_trainings)]


class _CountingPack(Pack[CategoryPairsParameters]):
    lane_evaluations = 0

    def _evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        self.lane_evaluations += next(iter(parameters.values())).shape[0]
        return super()._evaluate(parameters, step, lanes)


def _train_pack(job: Job, n_steps: int) -> tuple[list[float], int]:
    programs = Programs() if job.side == "compiled" else None
    pack = _CountingPack(WORKLOAD, _trainings(job, n_steps), job.device, programs=programs)
    while not pack.advance(1000):
        pass
    return pack.result().last("loss").tolist(), pack.lane_evaluations


def _train_one_by_one(job: Job, n_steps: int) -> tuple[list[float], int]:
    losses, evaluations = [], 0
    for training in _trainings(job, n_steps):
        model = _started(training, job.device)
        loss_of = _dense_loss(model, whole=job.side == "whole")
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=n_steps, line_search_fn="strong_wolfe")

        def closure(optimizer: torch.optim.Optimizer = optimizer, loss_of: Callable[[], Tensor] = loss_of) -> Tensor:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            return loss

        optimizer.step(closure)
        with torch.no_grad():
            losses.append(loss_of().item())
    return losses, evaluations


def _started(training: Training[CategoryPairsParameters], device: str) -> FullModel:
    """The model of one training at its start, with its task and texts."""
    lanes = Lanes([training], torch.device(device))
    model = WORKLOAD.build(training.parameters).to(device, lanes.dtype)
    assert isinstance(model, FullModel)
    model.load_state_dict({name: value[0] for name, value in WORKLOAD.initial(model, lanes).items()}, strict=False)
    return model


def _dense_loss(model: FullModel, *, whole: bool) -> Callable[[], Tensor]:
    """The mean squared error of the training's sample, by token matrices. Axes: as in full_model; S = N + M."""
    N, M = N_CATEGORIES, N_POSITIONS
    text_BM, dtype = model.text_BM, model.v_VV.dtype
    positions_BMM = torch.eye(M, dtype=dtype, device=text_BM.device).expand(text_BM.shape[0], M, M)
    tokens_BSM = torch.cat([one_hot(text_BM, N).to(dtype).mT, positions_BMM], dim=1).contiguous()
    wanted_BK = model.wanted(text_BM)
    rows = {N: slice(0, N), M: slice(N, N + M), N + M: slice(0, N + M)}
    eps = model.layer_norm_eps.item()

    def seen(matrix: Tensor) -> tuple[Tensor, Tensor]:
        """The matrix, and the tokens that it multiplies."""
        own = rows[matrix.shape[0]]
        if whole:
            around = (own.start, N + M - own.stop)
            return pad(matrix, around + around), tokens_BSM
        return matrix, tokens_BSM[:, own]

    def loss() -> Tensor:
        (k, read_BSM), (q, _), (v, value_BSM) = seen(model.k_SS), seen(model.q_SS), seen(model.v_VV)
        logits_BMM = model.scale * (k @ read_BSM).mT @ (q @ read_BSM)
        out_BSM = v @ value_BSM @ logits_BMM + value_BSM
        if whole:
            out_BSM = out_BSM[:, rows[model.v_VV.shape[0]]]
        normal_BMV = layer_norm(out_BSM.mT, model.gain_V.shape, model.gain_V, model.bias_V, eps)
        answer_BK: Tensor = model.second(nn.functional.relu(model.first(normal_BMV)))[:, 1:, 0]
        return (wanted_BK - answer_BK).square().mean()

    return loss


def _flops_of_evaluation(job: Job) -> int:
    """Floating-point operations in products of matrices of one lane's loss and gradient."""
    model = _started(_trainings(job, N_STEPS)[0], "cpu")
    with FlopCounterMode(display=False) as counter:
        model(model.text_BM)[0].backward()
    return int(counter.get_total_flops())


def _fp32_flops() -> float:
    """Floating-point operations per second of the card, in a product of two big matrices without TF32."""
    matrix = torch.randn(8192, 8192, device="cuda")
    torch.matmul(matrix, matrix)
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(5):
        torch.matmul(matrix, matrix)
    torch.cuda.synchronize()
    return 5 * 2 * 8192**3 / (time.perf_counter() - started)


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


if __name__ == "__main__":
    main()
