"""The result of a trained pack. Axes: L lane, P probe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from attnsweep.workloads.engine.contract import Evidence, HeadScores

T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadProbe:
    """The heads of the trainings that were active at one probe.

    Attributes:
        step: Of the probe.
        lanes: (A,) which trainings.
        heads: Their scores.
    """

    step: int
    lanes: NDArray[np.int64]
    heads: HeadScores


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """L ended trainings.

    Attributes:
        evidence: What was measured, (L, P).
        last_probe: (L,) index of the last probe that each training reached with a finite loss.
        diverged_step: (L,) first step whose loss was not finite, -1 where there was none.
        n_steps: (L,) optimizer steps taken.
        train_seconds: (L,) wall time, each training's share of the pack's.
        heads: What attention heads did, probe by probe; empty for a workload without.
    """

    evidence: Evidence
    last_probe: NDArray[np.int64]
    diverged_step: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    train_seconds: NDArray[np.float64]
    heads: tuple[HeadProbe, ...]

    def last(self, metric: str) -> NDArray[np.float64]:
        """(L,) the metric at each training's last probe."""
        return self.at_last_probe(self.evidence.metrics[metric])

    def at_last_probe(self, table_LP: NDArray[T]) -> NDArray[T]:
        """(L,) of values at each probe, those at each training's last."""
        return np.take_along_axis(table_LP, self.last_probe[:, None], axis=1)[:, 0]

    def at(self, steps: Sequence[int]) -> "PackResult":
        """The same as if only these probes had been made, among them the last of each training."""
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
    def lane_steps(self) -> int:
        """Optimizer steps summed over lanes: the work done."""
        return int(self.n_steps.sum())
