"""CPU time of a training's step: attnsweep against a plain PyTorch loop, JAX and HFTA; and of whole sweeps.

    python benchmarks/vs_jax.py [--cases "system P" induction ...] [--rounds 3] [--out benchmarks/vs_jax.json]

`--cases` takes the beginnings of names. One thread, CPU seconds, sides in turns after a first call of each, the best
round. `compile` is the CPU seconds of a first step, with no compiled program on the machine.

- `plain`: a loop of PyTorch over trainings, with the same module, on one batch. The other sides draw their batches.
- `jax`, if it is installed: `jit` of a `fori_loop` of SGD steps over `vmap` of the gradient, from the same weights. The
  losses of both sides are compared first.
- `hfta` (Wang et al. 2021), if it is on the path: the layers and the optimizer that it fuses by hand.
- `sweep`: `attnsweep run --local --no-report` of the recall problem, end to end, against a script that trains as many
  in a plain loop, with as many evaluations. Two static parameters divide the trainings into packs. The script trains
  one of each pack; for each of the others the seconds of its steps are added once more.
- `module kinds`: the factors in docs/problem.md, 16 trainings of width 32.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from harness import apart, attnsweep_command, chosen, main, spent_by, step_seconds, timed
from shared import decoder
from shared.shapes import ADAMW, SHAPES, Shape, plain_loop
from torch import nn

from attnsweep import Categorical, Sweep
from attnsweep.workloads.engine.compiling.programs import Programs

STEPS: dict[str, tuple[int, ...]] = {
    "system P, float64": (16, 64, 256),
    "system C, float64": (64,),
    "induction": (16, 64, 256),
    "FIRST, length 30": (64,),
    "FIRST, lengths 10 to 300": (64,),
    "PARITY, two layers": (64,),
    "HFTA's network": (64, 256),
    "two layers of attention, d = 16": (64,),
    "nanoGPT, d = 64": (16,),
    "recall, dropout 0": (4, 8, 16, 28),
    "recall, dropout 0.1": (4, 8, 16, 28),
    "addition, 289 pairs": (4,),
    "translation, float32": (16,),
}
"""The numbers of trainings, by shape."""
PARTS: dict[int, tuple[int, ...]] = {4: tuple(range(1, 9)), 8: (5, 6, 7, 8), 16: (7, 8), 28: (8,)}
"""The numbers of pairs of a sweep, by the size of its packs."""
HEADS, SWEEP_STEPS, STEPS_A_PROBE = (1, 2, 4), 400, 20
SWEEPS = {f"sweep of recall, dropout {p}, packs of {n}": (p, n) for p in (0.0, 0.1) for n in PARTS}
CASES = (*STEPS, *SWEEPS, "module kinds")


def measure(*, cases: tuple[str, ...] = CASES, rounds: int = 3) -> dict[str, Any]:
    """Costs of steps, of sweeps and of module kinds."""
    torch.set_num_threads(1)
    named = chosen(CASES, cases)
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        return {
            "steps": [_steps(name, size, rounds) for name in named if name in STEPS for size in STEPS[name]],
            "sweeps": [{"case": name, **_sweep(*SWEEPS[name])} for name in named if name in SWEEPS],
            "module_kinds": _module_kinds(rounds) if "module kinds" in named else [],
        }


def _steps(name: str, size: int, rounds: int) -> dict[str, Any]:
    """Microseconds of CPU for a step of one training, of each side."""
    shape = SHAPES[name]
    compiled = shape.pack(size, programs=Programs())
    compile_seconds = timed(lambda: compiled.advance(1))
    sides = {"plain": plain_loop(shape), "compiled": compiled.advance, "eager": shape.pack(size).advance}
    if find_spec("jax"):
        from shared import of_jax

        if name in of_jax.LOSSES:
            sides["jax"] = of_jax.advance_of(name, shape, size)
    if find_spec("hfta") and name == "HFTA's network":
        sides["hfta"] = _of_hfta(size)
    seconds = step_seconds(sides, rounds)
    taken = {side: each / (1 if side == "plain" else size) for side, each in seconds.items()}
    return {
        "shape": name,
        "trainings": size,
        "microseconds": {side: round(1e6 * each, 2) for side, each in taken.items()},
        "times": {side: round(each / taken["compiled"], 2) for side, each in taken.items() if side != "compiled"},
        "compile": round(compile_seconds, 1),
    }


def _of_hfta(size: int) -> Callable[[int], object]:
    from hfta.ops import get_hfta_op_for
    from hfta.optim import get_hfta_optim_for

    linear, norm = (get_hfta_op_for(kind, B=size) for kind in (nn.Linear, nn.LayerNorm))
    network = nn.Sequential(norm(16), linear(16, 64), nn.Tanh(), linear(64, 1))
    adam = get_hfta_optim_for(torch.optim.Adam, B=size)(network.parameters(), lr=[1e-3] * size)
    teacher = torch.randn(size, 16, 1)

    def advance(n: int) -> None:
        for _ in range(n):
            x = torch.randn(size, 64, 16)
            # The sum over trainings of each one's mean, so that gradients do not depend on their number.
            loss = (network(x) - x @ teacher).square().mean(dim=(-2, -1)).sum()
            adam.zero_grad()
            loss.backward()
            adam.step()

    return advance


def _sweep(dropout: float, pack: int) -> dict[str, Any]:
    """CPU seconds of both sides: start-up, compiling, probes and ledger included."""
    pairs = PARTS[pack]
    fixed = {"dropout": dropout, "n_steps": SWEEP_STEPS, "stop_when_solved": False, "dtype": "float32"}
    grid: dict[str, Any] = {"sampler": "grid", "trials": len(pairs) * len(HEADS), "replicates": pack}
    space: dict[str, Any] = fixed | {"optimizer": "adamw", "n_pairs": Categorical(pairs), "n_heads": Categorical(HEADS)}
    workload = f"{Path(decoder.__file__).with_name('recall.py')}:recall"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spec.json").write_text(Sweep(name="recall", workload=workload, space=space, **grid).to_json())
        command = attnsweep_command("run", "spec.json", "--local", "--no-report", "--dir", "sweep")
        found = spent_by(command, folder, MLFLOW_TRACKING_URI=f"sqlite:///{folder}/mlflow.db", XDG_CACHE_HOME=folder)
    steps, spent = apart(plain_script, dropout=dropout, pack=pack)
    ours, plain = found.cpu_seconds, spent.cpu_seconds + steps * (pack - 1)
    seconds = {"attnsweep": round(ours, 1), "plain": round(plain, 1)}
    return {"trainings": grid["trials"] * pack, "cpu_seconds": seconds, "times": round(plain / ours, 2)}


def plain_script(dropout: float, pack: int) -> float:
    """CPU seconds of one training of each pack."""
    shapes = [(n_pairs, n_heads) for n_pairs in PARTS[pack] for n_heads in HEADS]
    return decoder.train(shapes, dropout, SWEEP_STEPS, STEPS_A_PROBE)


def _module_kinds(rounds: int) -> list[dict[str, Any]]:
    """How many times as fast as a plain loop 16 trainings of a module are."""
    sys.path.append(str(Path(__file__).parents[1]))
    from tests.workloads.models.module_kinds import KindWorkload, kinds

    class OnOneBatch(KindWorkload):
        drawn: Any = None

        def batch(self, lanes: Any, step: int, use: str = "train") -> Any:
            self.drawn = self.drawn or super().batch(lanes, step, use)
            return self.drawn

    rows = []
    for name, kind in kinds(width=32, n_tokens=16).items():
        if kind.refused or (kind.needs and not find_spec(kind.needs)):
            continue
        shapes = [Shape(OnOneBatch(kind, n_sequences=16), [ADAMW]) for _ in range(2)]
        pack = shapes[0].pack(16, programs=None if kind.not_compiled else Programs())
        seconds = step_seconds({"plain": plain_loop(shapes[1]), "pack": pack.advance}, rounds, 0.4)
        rows.append({"module": name, "engine": kind.engine, "times": round(16 * seconds["plain"] / seconds["pack"], 1)})
    return rows


if __name__ == "__main__":
    main(measure)
