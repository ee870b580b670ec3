"""Draws trials for the samplers `random`, `qmc` and `grid`. A draw depends only on the sweep's seed and the trial's
number.

The values are those that Optuna's samplers draw for the trial of this number. Earlier trials are not needed. So if a
sweep is divided among a hundred drivers, each draws for its trials what a single driver would draw.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState, create_trial

from attnsweep.search_spaces.dimensions import Scalar, Varied
from attnsweep.search_spaces.optuna_internals import SearchSpaceTransform
from attnsweep.search_spaces.suggestion import (
    SweepQMCSampler,
    distributions,
    make_sampler,
    trial_seed,
    undrawn,
    values_of,
)
from attnsweep.search_spaces.sweep import Sampler, Sweep
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

if TYPE_CHECKING:
    from scipy.stats.qmc import Sobol


class RandomDraws:
    """Draws the trials of a sweep with the sampler `random`. Each trial has its own seed.

    The values are the same as those of Optuna's `RandomSampler(seed)`, which takes several times as long to draw them.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._unconditional = _Space(distributions(sweep))
        self._conditional: dict[tuple[str, Varied], _Space] = {}
        self._has_conditional = bool(sweep.conditional())
        self._generator = np.random.RandomState()

    def draw(self, trial: int) -> tuple[dict[str, Scalar], dict[str, BaseDistribution]]:
        """Draws a trial. Returns its parameter values and their Optuna distributions, both by parameter name."""
        self._generator.seed(self.seed_of(trial))
        point = self.unconditional(trial)
        space = self._unconditional
        drawn = space.draw(self._generator) if point is None else space.stored(point)
        used = space.distributions
        while self._has_conditional and (missing := undrawn(self.sweep, drawn)):
            for name, dimension in missing.items():
                space = self._conditional.setdefault((name, dimension), _Space({name: dimension.distribution()}))
                drawn |= space.draw(self._generator)
                used = used | space.distributions
        return drawn, used

    def seed_of(self, trial: int) -> int:
        """Returns the seed for the random values of one trial."""
        return trial_seed(self.sweep, trial)

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        """Returns a trial's values of all unconditional parameters if the trial's number determines them, as in a grid
        or a quasi-random sequence. If the sampler draws them at random, returns `None`."""
        del trial
        return None


def drawn_parameters(sweep: Sweep, parameters: type[TrainingParameters], n_trials: int) -> list[TrainingParameters]:
    """Draws the parameters of a sweep's first trials at random, even if the sweep names another sampler. Invalid
    combinations are left out.

    Raises:
        SpecError: If all of them are invalid.
    """
    draws, accepted, refusal = RandomDraws(sweep), [], None
    for trial in range(n_trials):
        try:
            accepted.append(parameters.resolve(values_of(sweep, draws.draw(trial)[0])))
        except SpecError as error:
            refusal = error
    if not accepted and refusal is not None:
        raise refusal
    return accepted


class _Space:
    """Parameters that are drawn together, in a fixed order and in the same way as by Optuna's random sampler."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        # Optuna draws nothing for a parameter that has only one value, so this class draws nothing for it either.
        varied = {name: distribution for name, distribution in distributions.items() if not distribution.single()}
        self._single = {
            name: _only_value(distribution) for name, distribution in distributions.items() if name not in varied
        }
        self._transform = SearchSpaceTransform(varied) if varied else None

    def draw(self, generator: np.random.RandomState) -> dict[str, Scalar]:
        values: dict[str, Scalar] = dict(self._single)
        if self._transform is not None:
            bounds = self._transform.bounds
            values |= self._transform.untransform(generator.uniform(bounds[:, 0], bounds[:, 1]))
        return self.stored(values)

    def stored(self, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Returns drawn values in the form in which an Optuna study stores them."""
        values = {**drawn, **self._single}
        # Converting a value to Optuna's internal form may round it. So each value is converted to this form and back.
        return {
            name: distribution.to_external_repr(distribution.to_internal_repr(values[name]))
            for name, distribution in self.distributions.items()
        }


def _only_value(distribution: BaseDistribution) -> Scalar:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    low: Scalar = distribution.low  # type: ignore[attr-defined]
    return low


def draws_of(sweep: Sweep) -> RandomDraws:
    """Returns an object that draws each trial of a sweep from the trial's number alone, without knowing the results of
    other trials. It serves the samplers `random`, `qmc` and `grid`."""
    kinds: dict[Sampler, type[RandomDraws]] = {"random": RandomDraws, "qmc": _QuasiRandomDraws, "grid": _GridDraws}
    return kinds[sweep.sampler](sweep)


class _QuasiRandomDraws(RandomDraws):
    """Draws trials from a quasi-random sequence. Trial 0 and all conditional parameters are drawn at random instead."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep)
        self._sequence = _Sequence(sweep)

    def seed_of(self, trial: int) -> int:
        return trial_seed(self.sweep, trial) if trial else self.sweep.seed % 2**32

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        return self._sequence.point(trial - 1) if trial else None


class _Sequence(SweepQMCSampler):
    """Optuna's quasi-random sequence for a sweep. It is kept between draws, whereas Optuna builds it anew for each
    point."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep, 0)
        self._distributions = distributions(sweep)
        self._engine: Sobol | None = None
        self._at = 0

    def point(self, number: int) -> dict[str, Any]:
        """Returns the point with the given number in Optuna's quasi-random sequence, as values by parameter name.

        If the number is lower than that of the last call, the sequence is started again.
        """
        self._at = number
        # The study and the trial may be None: only Optuna's own `_sample_qmc` would use them, and this class overrides
        # that method.
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
    """Draws each point of a sweep's grid once, in an order that depends on the sweep's seed."""

    def __init__(self, sweep: Sweep) -> None:
        super().__init__(sweep)
        self._grid, self._axes = make_sampler(sweep, 0), distributions(sweep)

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        point = create_trial(state=TrialState.RUNNING, system_attrs={"grid_id": trial})
        return {name: self._value(point, name, distribution) for name, distribution in self._axes.items()}

    def _value(self, point: Any, name: str, distribution: BaseDistribution) -> Scalar:
        value: Scalar = self._grid.sample_independent(None, point, name, distribution)  # type: ignore[arg-type]
        return value
