"""Trials that follow from the sweep's seed and the trial's number alone: for the samplers `random`, `qmc` and `grid`.

The values are those that Optuna's samplers draw for the trial of this number, without the trials before it: a driver
that owns every hundredth trial draws the same values as a single driver of the whole sweep.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.trial import TrialState, create_trial

from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.random_draws import RandomDraws
from attnsweep.search_spaces.suggestion import SweepQMCSampler, distributions, make_sampler, trial_seed
from attnsweep.search_spaces.sweep import Sweep

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol


def draws_of(sweep: Sweep) -> RandomDraws:
    """Returns the object that draws a sweep's trials by number, for samplers that do not learn from earlier trials."""
    match sweep.sampler:
        case "qmc":
            return _QuasiRandomDraws(sweep)
        case "grid":
            return _GridDraws(sweep)
    return RandomDraws(sweep)


class _QuasiRandomDraws(RandomDraws):
    """Draws points of the quasi-random sequence. Draws the first trial and conditional parameters at random."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep)
        self._sequence = _Sequence(sweep)

    def seed_of(self, trial: int) -> int:
        return trial_seed(self.sweep, trial) if trial else self.sweep.seed % 2**32

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        return self._sequence.point(trial - 1) if trial else None


class _Sequence(SweepQMCSampler):
    """Optuna's quasi-random sequence for a sweep, kept between draws to save time.

    Optuna constructs the sequence anew for each point and advances it from the beginning.

    Args:
        sweep: The sweep.
    """

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep, 0)
        self._distributions = distributions(sweep)
        self._engine: Sobol | None = None
        self._at = 0

    def point(self, number: int) -> dict[str, Any]:
        """Returns the values of point `number` by parameter name. A number below the last restarts the sequence."""
        self._at = number
        # Only Optuna's own `_sample_qmc` would use the study and the trial, and this class overrides that method.
        return self.sample_relative(None, None, self._distributions)  # type: ignore[arg-type]

    def _sample_qmc(self, study: object, search_space: Mapping[str, object]) -> NDArray[np.float64]:
        del study
        # SciPy is imported here because its import takes a second.
        from scipy.stats.qmc import Sobol

        if self._engine is None or self._engine.num_generated > self._at:
            self._engine = Sobol(len(search_space), seed=self._seed, scramble=True)
        if ahead := self._at - self._engine.num_generated:
            self._engine.fast_forward(ahead)
        point: NDArray[np.float64] = self._engine.random(1)
        return point


class _GridDraws(RandomDraws):
    """Draws every point of the grid once, in an order that the sweep's seed decides."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep)
        self._grid, self._axes = make_sampler(sweep, 0), distributions(sweep)

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        point = create_trial(state=TrialState.RUNNING, system_attrs={"grid_id": trial})
        return {name: self._value(point, name, distribution) for name, distribution in self._axes.items()}

    def _value(self, point: Any, name: str, distribution: BaseDistribution) -> Scalar:
        value: Scalar = self._grid.sample_independent(None, point, name, distribution)  # type: ignore[arg-type]
        return value
