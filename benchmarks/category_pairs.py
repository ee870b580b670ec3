"""Fused packs of the full category-pairs models against a plain PyTorch loop, at the size of the paper.

    python benchmarks/category_pairs.py [--variants solution_3 ...] [--dtypes float32 float64] [--sizes 4 8 16 32]
        [--steps 50] [--out benchmarks/category_pairs.json]

N = 10, M = 50, 1,000 texts, 50 iterations of L-BFGS with strong-Wolfe search; all trainings run to the end. The peer is
what one would write from the paper: `torch.optim.LBFGS` on one training after the other, with dense one-hot token
matrices. Its form `whole` has k, q and v padded to N + M rows, as printed; `blocks` has only the rows that they see.
Both sides start from the same values and texts. Our time includes building the pack and all its probes (test loss,
matches, ablation, head scores); the peer has no probes. `pack` is the vmapped engine, `compiled` that of blocks. Each
number is measured in fresh processes, with one thread each if there are several. On all cores the peer counts with its
threads or its processes, whichever is faster. A pack's evaluations are counted by lane. Systems P and C are measured by
`fusion.py`, solution 3 on a GPU by `gpu.py`.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from harness import apart, chosen, cpu_seconds, main
from shared.shapes import PAIRS, Shape, started
from torch import Tensor, nn
from torch.nn.functional import layer_norm, one_hot, pad

from attnsweep.workloads.category_pairs.full_model import FullModel
from attnsweep.workloads.category_pairs.parameters import FULL_VARIANTS
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.executors.programs import Programs
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.probing import Objective
from attnsweep.workloads.engine.process import training_settings

N_CATEGORIES, N_POSITIONS = 10, 50
PAPER: dict[str, Any] = {"n_categories": N_CATEGORIES, "n_positions": N_POSITIONS, "batch_size": 1000}
SEARCHED: dict[str, Any] = {"expectation": "fixed_sample", "optimizer": "lbfgs", "learning_rate": 1.0}
ENDLESS: dict[str, Any] = {"init_sigma": None, "stop_when_solved": False}
PEERS, ENGINES = ["whole", "blocks"], ["pack", "compiled"]
PEER_TRAININGS = 2
"""Trainings of the peer in each process; its seconds per training are their mean."""


def measure(
    *,
    variants: tuple[str, ...] = ("solution_3",),
    dtypes: tuple[str, ...] = ("float32", "float64"),
    sizes: tuple[int, ...] = (4, 8, 16, 32),
    steps: int = 50,
) -> dict[str, Any]:
    """Measures all variants."""
    rows: list[dict[str, Any]] = []
    for variant in chosen(FULL_VARIANTS, variants):
        # In the combined model k, q and v see all rows: both forms are the same.
        peers = PEERS[:1] if variant == "combined" else PEERS
        for dtype in chosen(("float32", "float64"), dtypes):
            case = {"variant": variant, "dtype": dtype, "n_steps": steps}
            measured = [_measured(side, PEER_TRAININGS, case) for side in peers]
            packs = [_measured(side, size, case) for size in sizes for side in ENGINES]
            rows += measured + [pack | _times(pack, measured) for pack in packs]
    return {"rows": rows}


def _measured(side: str, size: int, case: dict[str, Any]) -> dict[str, Any]:
    """On one core, and on all: one process, or for the peer also one thread, per core."""
    cores = os.cpu_count() or 1
    figures = {"one_core": _together(1, 1, side=side, size=size, **case)}
    if cores > 1:
        figures["all_cores"] = _together(cores, 1, side=side, size=size, **case)
    if cores > 1 and side in PEERS:
        figures["all_threads"] = _together(1, cores, side=side, size=size, **case)
    return {"side": side, "trainings": size, **case, **figures}


def _times(pack: dict[str, Any], peers: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times faster than each form of the peer, by CPU seconds on one core, and by seconds on all."""
    found = {}
    for peer in peers:
        of_peer, ours = (each["one_core"]["cpu_seconds_per_training"] for each in (peer, pack))
        found[f"times_{peer['side']}_one_core"] = _rounded(of_peer / ours)
        if "all_cores" in pack:
            fastest = min(peer[cores]["seconds_per_training"] for cores in ("all_cores", "all_threads"))
            found[f"times_{peer['side']}_all_cores"] = _rounded(fastest / pack["all_cores"]["seconds_per_training"])
    return found


def _together(n_processes: int, n_threads: int, **case: Any) -> dict[str, Any]:
    """Seconds per training and per evaluation, with this number of processes at once."""
    with ThreadPoolExecutor(n_processes) as pool:
        calls = [pool.submit(apart, train, part=part, n_threads=n_threads, **case) for part in range(n_processes)]
        done = [call.result()[0] for call in calls]
    seconds, losses = max(each["seconds"] for each in done), [loss for each in done for loss in each["losses"]]
    evaluations = sum(each["evaluations"] for each in done)
    return {
        "seconds_per_training": _rounded(seconds / len(losses)),
        "seconds_per_evaluation": _rounded(seconds / evaluations),
        "cpu_seconds_per_training": _rounded(sum(each["cpu_seconds"] for each in done) / len(losses)),
        "evaluations_per_training": _rounded(evaluations / len(losses)),
        "first_two_losses": [_rounded(loss) for loss in losses[:2]],
    }


def train(side: str, size: int, part: int, n_threads: int, **case: Any) -> dict[str, Any]:
    """Trains the part's trainings, in one pack or one after the other, after two short ones to warm up."""
    torch.set_num_threads(n_threads)
    trained = _trained_one_by_one if side in PEERS else training_settings()(_trained_in_a_pack)
    trained(side, Shape(PAIRS, [PAPER | SEARCHED | ENDLESS | case | {"n_steps": 1}]).trainings(2))
    trainings = Shape(PAIRS, [PAPER | SEARCHED | ENDLESS | case]).trainings((part + 1) * size)[-size:]
    began, cpu_began = time.monotonic(), cpu_seconds()
    losses, evaluations = trained(side, trainings)
    spent = {"seconds": time.monotonic() - began, "cpu_seconds": cpu_seconds() - cpu_began}
    return {**spent, "losses": losses, "evaluations": evaluations}


class _Counting(Objective):
    lane_evaluations = 0

    def evaluate(self, parameters: State, step: int, lanes: Tensor | None = None) -> tuple[Tensor, State]:
        self.lane_evaluations += next(iter(parameters.values())).shape[0]
        return super().evaluate(parameters, step, lanes)


def _trained_in_a_pack(side: str, trainings: list[Training[Any]]) -> tuple[list[float], int]:
    """Their losses, and how many evaluations they took."""
    programs = Programs() if side == "compiled" else None
    pack = Pack(PAIRS, trainings, programs=programs)
    pack._objective = objective = _Counting(PAIRS, pack._store, programs)
    return pack.train_to_end().last("loss").tolist(), objective.lane_evaluations


def _trained_one_by_one(side: str, trainings: list[Training[Any]]) -> tuple[list[float], int]:
    losses, evaluations = [], 0
    for training in trainings:
        model = started(PAIRS, training)
        assert isinstance(model, FullModel)
        loss_of = _dense_loss(model, whole=side == "whole")
        optimizer = torch.optim.LBFGS(
            model.parameters(), max_iter=training.parameters.n_steps, line_search_fn="strong_wolfe"
        )

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


def _dense_loss(model: FullModel, *, whole: bool) -> Callable[[], Tensor]:
    """The mean squared error of the training's sample, by token matrices. Axes: as in full_model; S = N + M."""
    N, M = N_CATEGORIES, N_POSITIONS
    text_BM, dtype = model.text_BM, model.v_VV.dtype
    positions_BMM = torch.eye(M, dtype=dtype).expand(text_BM.shape[0], M, M)
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


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


if __name__ == "__main__":
    main(measure)
