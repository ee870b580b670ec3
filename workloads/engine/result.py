"""The measurements of a pack, recorded while it trains. Axes: L training, A active training, P probe."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.checkpoint import Checkpoint
from attnsweep.workloads.engine.contract import HeadScores
from attnsweep.workloads.engine.layout import prefixed, under
from attnsweep.workloads.engine.outcomes import Evidence
from attnsweep.workloads.vocabulary import RESERVED_METRICS

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, slots=True)
class HeadProbe:
    step: int
    lanes: NDArray[np.int64]
    heads: HeadScores


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """The measurements of all trainings of a pack, and how each ended; arrays are (L,).

    Attributes:
        last_probe: The index of the last probe that a training reached before it diverged.
        diverged_step: The first step whose loss was not finite, or seen lower than the workload allows; -1 if none.
        pruned_step: The step of the probe at which it was pruned, -1 if it was not.
        probe_seconds: A training's share of the pack's probes, part of `train_seconds`.
    """

    evidence: Evidence
    last_probe: NDArray[np.int64]
    diverged_step: NDArray[np.int64]
    pruned_step: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    train_seconds: NDArray[np.float64]
    probe_seconds: NDArray[np.float64]
    heads: tuple[HeadProbe, ...]

    def last(self, metric: str) -> NDArray[np.float64]:
        return self.at_last_probe(self.evidence.metrics[metric])

    def at_last_probe(self, table_LP: NDArray[T]) -> NDArray[T]:
        return np.take_along_axis(table_LP, self.last_probe[:, None], axis=1)[:, 0]

    def at(self, steps: Sequence[int]) -> "PackResult":
        """As if measured only at these steps, among which must be each training's last probe."""
        probes = np.searchsorted(self.evidence.steps, steps)
        evidence = replace(
            self.evidence,
            steps=self.evidence.steps[probes],
            metrics={name: np.take(table, probes, axis=1) for name, table in self.evidence.metrics.items()},
        )
        return replace(
            self,
            evidence=evidence,
            last_probe=np.searchsorted(probes, self.last_probe),
            heads=tuple(probe for probe in self.heads if probe.step in steps),
        )

    @property
    def is_cut_short(self) -> NDArray[np.bool_]:
        """Which trainings diverged or were pruned, so that their weights are no whole training's."""
        return np.asarray((self.diverged_step >= 0) | (self.pruned_step >= 0))

    @property
    def lane_steps(self) -> int:
        return int(self.n_steps.sum())


_NEVER = -1
_PROGRESS = ("last_probe", "diverged_step", "pruned_step", "n_steps", "seconds", "probe_seconds")


class Record:
    """`prune_at`: the step at which each training is to be pruned, `None` where none is known."""

    def __init__(
        self, steps: Sequence[int], levels: dict[str, NDArray[np.float64]], prune_at: Sequence[int | None]
    ) -> None:
        n_lanes = len(prune_at)
        self._steps = np.array(steps, dtype=np.int64)
        self._levels = levels
        self._metrics: dict[str, NDArray[np.float64]] = {}
        self._heads: list[HeadProbe] = []
        self.last_probe = np.zeros(n_lanes, dtype=np.int64)
        self.diverged_step = np.full(n_lanes, _NEVER, dtype=np.int64)
        self.pruned_step = np.array([_NEVER if step is None else step for step in prune_at], dtype=np.int64)
        self.n_steps = np.zeros(n_lanes, dtype=np.int64)
        self.seconds = np.zeros(n_lanes)
        self.probe_seconds = np.zeros(n_lanes)

    def add_metrics(self, probe: int, lanes: NDArray[np.int64], metrics: dict[str, NDArray[np.float64]]) -> None:
        """Non-finite values become NaN."""
        for name, values_A in metrics.items():
            table = self._metrics.setdefault(name, np.full((self.n_steps.size, self._steps.size), np.nan))
            table[lanes, probe] = np.where(np.isfinite(values_A), values_A, np.nan)

    def metric(self) -> tuple[str, float] | None:
        """The workload's first metric, or `eval_loss`, and its mean over last probes; `None` if none is finite."""
        name = next((name for name in self._metrics if name not in RESERVED_METRICS), "eval_loss")
        if name not in self._metrics:
            return None
        values = self._metrics[name][np.arange(self.n_steps.size), self.last_probe]
        return None if np.isnan(values).all() else (name, float(np.nanmean(values)))

    def add_heads(self, probe: int, lanes: NDArray[np.int64], heads: HeadScores) -> None:
        self._heads.append(HeadProbe(int(self._steps[probe]), lanes, heads))

    def add_progress(
        self, probe: int, lanes: NDArray[np.int64], is_finite: NDArray[np.bool_], n_steps: NDArray[np.int64]
    ) -> None:
        self.last_probe[lanes[is_finite]] = probe
        self.n_steps[lanes] = n_steps
        self.diverged_step[lanes] = np.where(is_finite, _NEVER, n_steps)

    def prune(self, lanes: NDArray[np.int64], step: int) -> None:
        """Trainings pruned earlier keep their step."""
        new = lanes[self.pruned_step[lanes] == _NEVER]
        self.pruned_step[new] = step

    def is_pruned(self, lanes: NDArray[np.int64], step: int) -> NDArray[np.bool_]:
        pruned_step = self.pruned_step[lanes]
        return np.asarray((pruned_step != _NEVER) & (pruned_step <= step))

    def evidence(self, lanes: NDArray[np.int64], probes: NDArray[np.int64]) -> Evidence:
        return Evidence(
            steps=self._steps[probes],
            metrics={name: np.take(table[lanes], probes, axis=1) for name, table in self._metrics.items()},
            levels={name: values[lanes] for name, values in self._levels.items()},
        )

    def result(self) -> PackResult:
        return PackResult(
            evidence=self.evidence(np.arange(self.n_steps.size), np.arange(self._steps.size)),
            last_probe=self.last_probe,
            diverged_step=self.diverged_step,
            pruned_step=self.pruned_step,
            n_steps=self.n_steps,
            train_seconds=self.seconds,
            probe_seconds=self.probe_seconds,
            heads=tuple(self._heads),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is recorded, for `restore`."""
        return {
            **{name: getattr(self, name) for name in _PROGRESS},
            **prefixed("metrics", self._metrics),
            **{name: array for probe in self._heads for name, array in _arrays_of(probe).items()},
        }

    def restore(self, arrays: Checkpoint, step: int) -> None:
        """Loads another record of these trainings, last measured at `step`. Where that pruned nothing, our `prune_at`
        stays, raised to `step`."""
        due = np.where(self.pruned_step == _NEVER, _NEVER, np.maximum(self.pruned_step, step))
        for name in _PROGRESS:
            setattr(self, name, arrays[name].copy())
        self.pruned_step = np.where(self.pruned_step == _NEVER, due, self.pruned_step)
        self._metrics = {name: table.copy() for name, table in under("metrics", arrays).items()}
        by_step = defaultdict[int, dict[str, NDArray[Any]]](dict)
        for name, array in under("heads", arrays).items():
            probe_step, _, own = name.partition("/")
            by_step[int(probe_step)][own] = array.copy()
        self._heads = [
            HeadProbe(at, part["lanes"], HeadScores(scores=under("scores", part), role=part["role"]))
            for at, part in by_step.items()
        ]


def _arrays_of(probe: HeadProbe) -> dict[str, NDArray[Any]]:
    own = {"lanes": probe.lanes, "role": probe.heads.role.astype(np.str_), **prefixed("scores", probe.heads.scores)}
    return prefixed(f"heads/{probe.step}", own)
