"""The parts of `gpu_day.py`. Each yields names and what it found; on a GPU, or small on the pretended device."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gpu
import numpy as np
import torch
from gpu import WHOLE, bits_by_neighbours, rate_of, whole_trainings_by_neighbours

from attnsweep.orchestrator.training import trainer
from attnsweep.workloads.engine import lbfgs
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.device_memory import CudaMemory, MemoryOfPacks, peak_of
from attnsweep.workloads.engine.executors.graphs import Graphs
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_state import width_on
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.quasi_newton import CurvaturePairs
from attnsweep.workloads.testing import defaults
from shared.bare_sweep import BareSweep, Points
from shared.parts_apart import Findings, Part
from shared.ring_of_pairs import RingOfPairs
from shared.shapes import GPU_SHAPES, LANGUAGES, PAIRS, SHAPES, STRINGS, Shape, clock_of, plain_loop


class PretendedMemory:
    """Of a GPU with room for every pack."""

    def begin(self) -> None:
        """Counts nothing."""

    def peak(self) -> int:
        return 2**20

    def free(self) -> int:
        return 2**40


def pretended_gpu() -> str:
    """The device's name; from now on trainers of this process find graphs, a compiler and memory there."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.workloads.engine.recorded_graph import RecordedGraph
    from tests.workloads.pretend_device import pretend_device

    def executors_on(device: str, engine: str) -> Graphs:
        del device
        return Graphs(RecordedGraph, 4, _as_it_is if engine == "merged" else None)

    for module, name, stand_in in (
        (trainer, "executors_on", executors_on),
        (trainer, "memory_of", lambda _: PretendedMemory()),
        (gpu, "executors_on", executors_on),
    ):
        setattr(module, name, stand_in)
    return pretend_device()


def _as_it_is(graph: torch.fx.GraphModule, examples: Sequence[torch.Tensor]) -> Callable[..., object]:
    del examples
    return graph


P, FIRST, SEARCHED = "system P, float64", "FIRST, lengths 10 to 300", "solution 3, L-BFGS, float64"
_NEEDED = ("ray", "optuna", "mlflow", "duckdb", "pydantic")
_BORDER: dict[str, Any] = {
    **{"variant": "positions_only", "n_categories": 5, "n_positions": 8, "optimizer": "lbfgs", "learning_rate": 1.0},
    "n_steps": 150,
}
"""As `precision_border` has it."""
_FULL: dict[str, Any] = {"expectation": "fixed_sample", "batch_size": 256, "optimizer": "lbfgs", "learning_rate": 1.0}
_SMALL: dict[str, dict[str, Any]] = {
    "quickstart": {"n_steps": 4},
    "chiang_fig4": {
        **{"n_epochs": 1, "steps_per_epoch": 2, "eval_batch_size": 2, "test_batch_size": 2, "train_length": 4},
        "longest_test_length": 6,
    },
    "stuck_full": {"n_steps": 2, "batch_size": 3, "n_categories": 3, "n_positions": 4},
    "mission_pairs": {"n_steps": 2, "batch_size": 3, "n_categories": 3, "n_positions": 4},
    "head_roles": {
        **{"n_sentences": 40, "n_nouns": 6, "n_transitive_verbs": 4, "n_intransitive_verbs": 2, "n_adjectives": 3},
        **{"n_names": 8, "d_model": 8, "d_ffn": 12, "batch_size": 8, "n_steps": 2, "n_probes": 2},
        **{"eval_sentences": 2, "head_sentences": 2},
    },
}
"""What a rehearsal changes of the sweeps."""


@dataclass
class Day:
    """A day on a GPU.

    Attributes:
        on: `cuda`; `pretend` is the pretended device.
        is_small: Whether everything is small.
    """

    on: str
    is_small: bool = False

    def parts(self, names: Iterable[str]) -> list[Part]:
        """Some of the parts."""
        return [Part(name, getattr(self, name), PARTS[name]) for name in names]

    @cached_property
    def device(self) -> str:
        """Where trainings run: known in a part's process only."""
        return pretended_gpu() if self.on == "pretend" else self.on

    def prepare(self) -> None:
        """Before a rehearsal's parts are forked off: imports what each would import.

        On a GPU nothing is done before: one that this process has touched is lost to those that it forks off.
        """
        if self.is_small:
            assert self.device
            for module in ("torch._dynamo", "torch.distributed.tensor", "pyarrow.parquet"):
                importlib.import_module(module)

    def machine(self, until: float) -> Findings:
        """What this is."""
        del until
        found: dict[str, Any] = {"device": self.device, "torch": torch.__version__, "python": sys.version.split()[0]}
        if self.device == "cuda":
            properties = torch.cuda.get_device_properties(self.device)
            found |= {"device": properties.name, "gibibytes": round(properties.total_memory / 2**30, 1)}
            found |= {"cuda": torch.version.cuda}
        yield "machine", found

    def bits(self, until: float) -> Findings:
        """Alone, moved, among others that end earlier; graphs and merged; whole trainings and first steps."""
        del until
        sizes = {"width": 2, "n_steps": 2} if self.is_small else {}
        for how in ("merged", "graphs"):
            # No graph holds a search. A rehearsal traces FIRST and translators in other parts.
            left_out: tuple[str, ...] = ("L-BFGS",) if how == "merged" else ()
            left_out += ("FIRST", "translation", "system C") if self.is_small else ()
            for name in WHOLE:
                if not any(each in name for each in left_out):
                    found = whole_trainings_by_neighbours(self.device, [name], how, **self._small(name))
                    yield f"whole trainings, {how}: {name}", _flat(found[name])
            for name in GPU_SHAPES:
                if not any(each in name for each in left_out):
                    found = bits_by_neighbours(self.device, [name], how, **sizes)
                    yield f"first steps, {how}: {name}", _flat(found[name])

    def sweeps_of_p(self, until: float) -> Findings:
        """`quickstart`, and 16,384 trainings of system P, against one by one on the same GPU."""
        steps = self._one_by_one(SHAPES[P])
        yield "one by one", {"steps_per_second": round(steps)}
        for name, engine, trials, replicates in (
            ("quickstart, merged", "merged", 128, 8),
            ("16,384 of P, merged", "merged", 1024, 16),
            ("16,384 of P, graphs", "vmapped", 1024, 16),
        ):
            yield name, self._swept("quickstart", engine, trials, replicates, until, steps)

    def figure_4(self, until: float) -> Findings:
        """Figure 4 of Chiang & Cholak: 800 trainings, twice; the second time its programs are there."""
        rates = {n: self._one_by_one(Shape(LANGUAGES, [STRINGS | {"train_length": n}])) for n in (10, 300)}
        yield "one by one", {f"steps_per_second_at_{n}": round(rate) for n, rate in rates.items()}
        steps = sum(rates.values()) / len(rates)
        for name in ("cold, merged", "warm, merged")[: 1 if self.is_small else 2]:
            yield name, self._swept("chiang_fig4", "merged", 8, 100, until, steps)
        yield "graphs", self._swept("chiang_fig4", "vmapped", 8, 100, until, steps)

    def main_command(self, until: float) -> Findings:
        """`attnsweep run`, where all that it needs is installed."""
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing or self.is_small:
            yield "run", {"left_out": f"not installed: {', '.join(missing)}" if missing else "a rehearsal"}
            return
        call = "from attnsweep.orchestrator.console_script import main; main()"
        on_gpu = ("--local", "--device", "cuda", "--engine", "merged", "--json")
        with tempfile.TemporaryDirectory() as folder:
            for words in (("run", "quickstart", *on_gpu), ("run", "chiang_fig4", *on_gpu)):
                place = str(Path(folder, words[1]))
                run = partial(subprocess.run, cwd=folder, capture_output=True, text=True, check=False)
                done = run([sys.executable, "-c", call, *words, "--dir", place], timeout=until - time.monotonic())
                last = (done.stdout.splitlines() or [""])[-1]
                said = json.loads(last) if done.returncode in (0, 3) else {"error": done.stderr[-400:]}
                yield f"run {words[1]}", {"exit_code": done.returncode, **_flat(said)}
                done = run([sys.executable, "-c", call, "audit", place], timeout=until - time.monotonic())
                yield f"audit {words[1]}", {"exit_code": done.returncode, "last": done.stdout.strip()[-200:]}

    def million(self, until: float) -> Findings:
        """1,024 x 1,024 trainings of `quickstart`, as many as end in the time: packs of 16,384."""
        found = self._swept("quickstart", "merged", 1024, 1024, until, pack_size=16384)
        yield "1,048,576 of P, merged", found
        rate = found["trainings_per_second"]
        yield "all of them", {"seconds": round(found["of"] / rate) if rate else None}

    def packs(self, until: float) -> Findings:
        """Packs that grow eightfold: their rate, and the memory that the two before predicted."""
        memory = PretendedMemory() if self.is_small else CudaMemory(self.device)
        for name, how in ((P, "merged"), (P, "graphs"), (FIRST, "graphs"), (SEARCHED, "eager")):
            peaks: dict[int, int] = {}
            for size in (2, 4, 8) if self.is_small else (64, 512, 4096, 32768):
                expected = None
                if len(peaks) > 1:
                    (small, large) = sorted(peaks.items())[-2:]
                    model = MemoryOfPacks.of(small, large)
                    expected = round(model.peak(size) / 2**20, 1)
                    if model.most_lanes(memory.free()) < size or time.monotonic() > until:
                        break
                found: dict[str, Any] = {}
                seconds = 0.0 if self.is_small else 1.0
                measured = partial(self._rate, found, SHAPES[name], size, how, seconds)
                peaks[size] = peak_of(memory, measured)
                found |= {"peak_mib": round(peaks[size] / 2**20, 1), "peak_by_smaller_packs_mib": expected}
                yield f"{name}, {how}, {size}", found
            if self.is_small:
                break

    def _rate(self, found: dict[str, Any], shape: Shape, size: int, how: str, seconds: float) -> None:
        found |= rate_of(shape, size, self.device, how, seconds)

    def triangular(self, until: float) -> Findings:
        """The triangular form of L-BFGS's walk (`ring_of_pairs`): bits first, then its direction and its time."""
        searched = [name for name in WHOLE if "L-BFGS" in name]
        with patch.object(lbfgs, "CurvaturePairs", RingOfPairs):
            for name in searched:
                found = whole_trainings_by_neighbours(self.device, [name], **self._small(name))
                yield f"whole trainings: {name}", _flat(found[name])
        yield "direction", {"largest_relative_difference": _direction_differs(self.device)}
        settings = PAIRS_OF_MISSION | (_SMALL["mission_pairs"] if self.is_small else {})
        for size, kind in product((2,) if self.is_small else (64, 512), (CurvaturePairs, RingOfPairs)):
            if time.monotonic() > until:
                return
            with patch.object(lbfgs, "CurvaturePairs", kind):
                clock = clock_of(self.device)
                began = clock()
                trainings = Shape(PAIRS, [settings]).trainings(size)
                result = Pack(PAIRS, trainings, self.device, width=width_on("cuda", size)).train_to_end()
                took = {"seconds": round(clock() - began, 2), "steps": int(np.max(result.n_steps))}
            form = "walk" if kind is CurvaturePairs else "triangular"
            yield f"solution 1, 250 iterations, {size} lanes, {form}", took

    def precision(self, until: float) -> Findings:
        """Below which `init_sigma` rounding holds a training of system P at the zero, by type of the products."""
        n_sigmas, n_seeds = (3, 1) if self.is_small else (49, 16)
        sigmas = np.logspace(-6, 0, n_sigmas)
        for qk, kind in product(("merged", "factored"), ("bfloat16", "tf32", "float32", "float64")):
            if time.monotonic() > until:
                return
            settings = _BORDER | {"qk": qk, "dtype": "float32" if kind == "tf32" else kind}
            if self.is_small:
                settings |= {"n_steps": 2}
            of_lane = np.repeat(sigmas, n_seeds)
            trainings = [
                Training(defaults(PAIRS, **settings, init_sigma=float(sigma)), seed)
                for seed, sigma in enumerate(of_lane)
            ]
            with _products_as("tf32" if kind == "tf32" else "ieee"):
                width = width_on("cuda", len(trainings))
                result = Pack(PAIRS, trainings, self.device, width=width).train_to_end()
            outcome = result.at_last_probe(judged(PAIRS, trainings[0].parameters, result.evidence).outcome)
            at_zero = (outcome == "degenerate_zero").reshape(n_sigmas, n_seeds).mean(1)
            yield f"qk {qk}, {kind}", {"border": _border(sigmas, at_zero), "at_zero": round(float(at_zero.mean()), 3)}

    def mission_pairs(self, until: float) -> Findings:
        """1,024 full models by L-BFGS, as many as end in the time."""
        yield "mission_pairs", self._swept("mission_pairs", "vmapped", 256, 4, until)

    def stuck_full(self, until: float) -> Findings:
        """2,048 full models by L-BFGS, as many as end in the time."""
        yield "stuck_full", self._swept("stuck_full", "vmapped", 512, 4, until)

    def translators(self, until: float) -> Findings:
        """1,024 translators, those of `head_roles` with twice its seeds."""
        # BLEU needs a library.
        yield "head_roles, graphs", self._swept("head_roles", "vmapped", 128, 8, until, test_sentences=0)

    def _swept(
        self,
        name: str,
        engine: str,
        trials: int,
        replicates: int,
        until: float,
        steps_one_by_one: float | None = None,
        pack_size: int | None = None,
        **changed: Any,
    ) -> dict[str, Any]:
        """What a sweep takes; `steps_one_by_one` are those that one training after the other takes in a second."""
        points = Points.of(name)
        if self.is_small:
            trials, replicates, pack_size, changed = 2, 2, 4, _SMALL[name] | changed
        tasks = list(points.tasks(trials, replicates, **changed))
        with tempfile.TemporaryDirectory() as folder:
            sweep = BareSweep(points.problem, tasks, self.device, engine, Path(folder), pack_size)
            left = until - time.monotonic()
            sweep.train(until - 0.15 * left)
            found = sweep.figures()
            if steps_one_by_one and sweep.n_trained:
                alone = found["lane_steps"] / steps_one_by_one
                found["times_one_by_one"] = round(alone / sweep.seconds, 1)
            return found | sweep.replayed(until)

    def _small(self, name: str) -> dict[str, Any]:
        """What a rehearsal changes of whole trainings."""
        if not self.is_small:
            return {}
        few = {"n_compared": 1, "most": 3}
        if name == "FIRST":
            return few | _SMALL["chiang_fig4"]
        return few | (_SMALL["mission_pairs"] if "L-BFGS" in name else {"n_steps": 3})

    def _one_by_one(self, shape: Shape) -> float:
        """Steps in a second of one training in a plain loop of PyTorch on the same device."""
        n_steps = 2 if self.is_small else 200
        advance, clock = plain_loop(shape, self.device), clock_of(self.device)
        advance(n_steps // 2)
        began = clock()
        advance(n_steps)
        return n_steps / (clock() - began)


PAIRS_OF_MISSION = _FULL | {"variant": "solution_1", "dtype": "float64", "n_steps": 250, "init_sigma": 0.1}
PARTS = {
    **{"machine": 60.0, "bits": 150.0, "sweeps_of_p": 120.0, "figure_4": 200.0, "main_command": 120.0},
    **{"million": 120.0, "triangular": 100.0, "packs": 90.0, "precision": 90.0, "translators": 120.0},
    **{"mission_pairs": 120.0, "stuck_full": 150.0},
}
"""The parts, the most valuable ones first, and the seconds after which each is killed."""


def _flat(found: object) -> dict[str, Any]:
    assert isinstance(found, Mapping)
    return {name: value for name, value in found.items() if not isinstance(value, dict | list)}


@contextmanager
def _products_as(name: str) -> Iterator[None]:
    """Within it float32 matrices are multiplied so on a GPU."""
    products = torch.backends.cuda.matmul
    before, products.fp32_precision = products.fp32_precision, name
    try:
        yield
    finally:
        products.fp32_precision = before


def _direction_differs(device: str, n_lanes: int = 8, n: int = 30, n_pairs: int = 12) -> float:
    """Between both forms, relative to its length, with random pairs of positive curvature."""
    generator = torch.Generator().manual_seed(0)
    like = torch.zeros(n_lanes, n, dtype=torch.float64).to(device)
    walk, ring = CurvaturePairs(like, n_pairs), RingOfPairs(like, n_pairs)
    lanes = torch.ones(n_lanes, dtype=torch.bool).to(device)
    for _ in range(n_pairs + 3):
        s, noise, gradient = (torch.randn(n_lanes, n, dtype=torch.float64, generator=generator) for _ in range(3))
        s, y, gradient = (each.to(device) for each in (s, s + 0.1 * noise, gradient))
        for pairs in (walk, ring):
            pairs.set_counts(*pairs.counts().tolist())
            pairs.add(lanes, s, y)
    expected, found = walk.descent_direction(gradient), ring.descent_direction(gradient)
    differs = (found - expected).norm(dim=1) / expected.norm(dim=1)
    return float(differs.max().cpu())


def _border(sigmas: "np.ndarray[Any, Any]", at_zero: "np.ndarray[Any, Any]") -> float | None:
    """Where the share at the zero falls through a half; `None` if it does so nowhere."""
    above = np.flatnonzero(at_zero >= 0.5)
    if not above.size or above[-1] == len(sigmas) - 1:
        return None
    last = above[-1]
    part = (at_zero[last] - 0.5) / (at_zero[last] - at_zero[last + 1])
    return float(f"{sigmas[last] * (sigmas[last + 1] / sigmas[last]) ** part:.3g}")
