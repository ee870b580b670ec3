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
        step: The step of the probe.
        lanes: (A,) the trainings' positions in the pack.
        heads: The scores of their heads.
    """

    step: int
    lanes: NDArray[np.int64]
    heads: HeadScores


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """L ended trainings.

    Attributes:
        evidence: The measurements, (L, P).
        last_probe: (L,) index of the last probe that each training reached with a finite loss.
        diverged_step: (L,) first step whose loss was not finite, -1 if there is none.
        pruned_step: (L,) the probe at which each training was pruned, -1 if it was not.
        n_steps: (L,) optimizer steps taken.
        train_seconds: (L,) each training's share of the pack's wall time.
        heads: The scores of attention heads, probe by probe; empty for a workload without heads.
    """

    evidence: Evidence
    last_probe: NDArray[np.int64]
    diverged_step: NDArray[np.int64]
    pruned_step: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    train_seconds: NDArray[np.float64]
    heads: tuple[HeadProbe, ...]

    def last(self, metric: str) -> NDArray[np.float64]:
        """(L,) the metric at each training's last probe."""
        return self.at_last_probe(self.evidence.metrics[metric])

    def at_last_probe(self, table_LP: NDArray[T]) -> NDArray[T]:
        """(L,) the values (L, P) at each training's last probe."""
        return np.take_along_axis(table_LP, self.last_probe[:, None], axis=1)[:, 0]

    def at(self, steps: Sequence[int]) -> "PackResult":
        """The result as if only these steps had been probed; they must include each training's last probe."""
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
        """(L,) whether each training diverged or was pruned, so that its weights are no end to look at."""
        return np.asarray((self.diverged_step >= 0) | (self.pruned_step >= 0))

    @property
    def lane_steps(self) -> int:
        """Optimizer steps summed over lanes: the work done."""
        return int(self.n_steps.sum())
