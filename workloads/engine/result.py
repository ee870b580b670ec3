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
    """The scores of attention heads at one probe, of the trainings that were active there.

    Attributes:
        step: The step of the probe.
        lanes: (A,) the trainings' positions in the pack.
        heads: The scores and roles of the heads.
    """

    step: int
    lanes: NDArray[np.int64]
    heads: HeadScores


@dataclass(frozen=True, kw_only=True, slots=True)
class PackResult:
    """The measurements of the L trainings of a pack.

    Attributes:
        evidence: The measurements, (L, P).
        last_probe: (L,) the index of the last probe that a training reached with a finite loss.
        diverged_step: (L,) the first step whose loss was not finite, -1 if there is none.
        pruned_step: (L,) the step of the probe at which a training was pruned, -1 if it was not.
        n_steps: (L,) the number of optimizer steps taken.
        train_seconds: (L,) a training's share of the pack's wall time.
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
        """Returns the values (L,) of a metric at each training's last probe."""
        return self.at_last_probe(self.evidence.metrics[metric])

    def at_last_probe(self, table_LP: NDArray[T]) -> NDArray[T]:
        """Selects from a table (L, P) the values (L,) at each training's last probe."""
        return np.take_along_axis(table_LP, self.last_probe[:, None], axis=1)[:, 0]

    def at(self, steps: Sequence[int]) -> "PackResult":
        """Returns the result as if only the given steps, which must include all last probes, had been probed."""
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
        """Returns which trainings diverged or were pruned, (L,): their weights are not those of a finished training."""
        return np.asarray((self.diverged_step >= 0) | (self.pruned_step >= 0))

    @property
    def lane_steps(self) -> int:
        """The sum of all lanes' optimizer steps, a measure of the work done."""
        return int(self.n_steps.sum())
