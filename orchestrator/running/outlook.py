"""What a sweep will take, told before its first training: its packs, and the time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from math import ceil, prod
from typing import Any, Self

import numpy as np
import torch

from attnsweep.orchestrator.running.engine_choice import shapes_by
from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.orchestrator.running.preflight import Sample
from attnsweep.orchestrator.storage.environment import Engine
from attnsweep.orchestrator.storage.run_records import span
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer import STOPS
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.suggestion import group_sizes
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.workloads.engine.construction import built_alone
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import training_settings

_MOST_WEIGHTS = 1_000_000
"""Steps of larger modules are not timed, because they may take long."""
_STEP_SECONDS, _N_TIMED, _LONG_STEP = 0.5, 8, 0.05
"""How long steps are timed, how many of a pack, and from which time on more trainings take as many times longer."""
_WORTH_FUSING = 16
"""A pack of fewer trainings gains little from sharing a program."""


@dataclass(frozen=True)
class Outlook:
    """The packs that a sweep will have, and how long they take.

    Attributes:
        shapes_by: The static parameters that vary, each with its number of values.
        n_steps: The steps of a training, the largest number of the sample.
        step_seconds: Seconds of a step of any pack, and for each training in it; `None` if unknown.
        pack_size: The size of all packs; `None` if the fastest one is looked for.
    """

    spec: Sweep
    shapes_by: Mapping[str, int]
    n_steps: int
    step_seconds: tuple[float, float] | None
    pack_size: int | None = None

    @classmethod
    def of(cls, sample: Sample, resources: Resources) -> Self:
        """Measures steps of a few trainings on this machine, unless a GPU or a cluster will take them."""
        on_cpu = resources.device == "cpu" or (resources.device == "auto" and not torch.cuda.is_available())
        seconds = _step_seconds(sample) if on_cpu and (resources.local or resources.starts_ray) else None
        n_steps = max(training.parameters.n_steps for trainings in sample.shapes for training in trainings)
        shapes = shapes_by(sample.spec, sample.workload)
        return cls(sample.spec, shapes, n_steps, seconds, resources.pack_size)

    def lines(self, n_trainers: int, engine: Engine) -> list[str]:
        """A line with the plan, and a warning if static parameters make packs small."""
        spec, most = self.spec, self.pack_size or PackSizer.smallest
        n_first, n_shapes = n_wanted(spec.replicates, {}), prod(self.shapes_by.values())
        n_packs, seconds, is_open = 0, 0.0, False
        for n_trials in _drawn_together(spec, n_trainers):
            shapes, lanes = min(n_shapes, n_trials), n_trials * n_first
            n_new = max(shapes * ceil(lanes / shapes / most), min(n_trainers, lanes))
            n_packs += n_new
            # Larger packs are tried in turn, so their number is not known.
            is_open |= self.pack_size is None and lanes > shapes * most
            if self.step_seconds is not None:
                base, each = self.step_seconds
                seconds += ceil(n_new / n_trainers) * self.n_steps * (base + each * lanes / n_new)
        n_trainings = spec.trials * n_first
        size, split = n_trainings / n_packs, " x ".join(self.shapes_by)
        least = "" if isinstance(spec.replicates, int) else "at least "
        packs = f"packs of {most} or more" if is_open else f"{n_packs:,} pack{'s' * (n_packs > 1)} of about {size:.0f}"
        bound = "about " if engine == "eager" else "at most about "
        takes = f", {bound}{span(timedelta(seconds=seconds))}" if seconds else ""
        on = f" on {n_trainers} trainer{'s' * (n_trainers > 1)}"
        plan = f"plan: {least}{n_trainings:,} trainings in {packs}{split and f' ({split})'}{takes}{on}"
        if n_shapes == 1 or size >= _WORTH_FUSING or n_trainings < 2 * _WORTH_FUSING:
            return [plan]
        together = "" if spec.sampler in LEARN_NOTHING else ", or use sampler='qmc', which draws all trials at once"
        return [
            plan,
            f"warning: {split} split this sweep into packs of about {size:.0f} trainings; {_WORTH_FUSING} take hardly"
            f" longer: raise replicates to {ceil(_WORTH_FUSING * n_first / size)}, vary fewer of them{together}",
        ]


def _drawn_together(spec: Sweep, n_trainers: int) -> list[int]:
    """Returns how many trials are drawn each time, and so can share packs."""
    if spec.sampler in LEARN_NOTHING:
        return [spec.trials]
    first, group = group_sizes(spec, n_trainers)
    ends = [*range(min(first, spec.trials), spec.trials, group), spec.trials]
    return [end - start for start, end in pairwise([0, *ends]) if end > start]


def _step_seconds(sample: Sample, seconds: float = _STEP_SECONDS) -> tuple[float, float] | None:
    until, found = time.monotonic() + seconds, list[tuple[float, float]]()
    with training_settings():
        for training, *_ in sample.shapes:
            if found and time.monotonic() > until:
                break
            try:
                if sum(value.numel() for value in built_alone(sample.workload, training).parameters()) > _MOST_WEIGHTS:
                    return None
                few, many = 2, 32
                least = _fastest_step(sample.workload, [training] * few)
                if least > _LONG_STEP:
                    found.append((0.0, least / few))
                    continue
                each = max(_fastest_step(sample.workload, [training] * many) - least, 0.0) / (many - few)
                found.append((least - few * each, each))
            except STOPS:
                raise
            except BaseException:  # noqa: BLE001  # The trainings' rows will contain the error.
                return None
    base, each = np.mean(found, axis=0)
    return float(base), float(each)


def _fastest_step(workload: Workload[Any], trainings: Sequence[Training[Any]]) -> float:
    """Trains a few steps, of which some are also measured, and returns the seconds of the fastest."""
    pack, times = Pack(workload, trainings), list[float]()
    while len(times) < _N_TIMED and not pack.done:
        started = time.perf_counter()
        pack.advance(1)
        times.append(time.perf_counter() - started)
    return min(times)
