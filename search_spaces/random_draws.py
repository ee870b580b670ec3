"""Draws the independent random values of Optuna's `RandomSampler`, a whole trial at once."""

from collections.abc import Mapping

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution

from attnsweep.search_spaces.dimensions import Scalar, Varied
from attnsweep.search_spaces.optuna_internals import SearchSpaceTransform
from attnsweep.search_spaces.suggestion import distributions, trial_seed, undrawn, values_of
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters


class RandomDraws:
    """Draws the trials of a sweep with the sampler `random`, each from its own seed.

    Each trial has its own seed, so its values depend on the sweep and the trial's number alone. The values equal those
    of `RandomSampler(seed)`, which takes several times as long.

    Args:
        sweep: The sweep.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._unconditional = _Space(distributions(sweep))
        self._conditional: dict[tuple[str, Varied], _Space] = {}
        self._has_conditional = bool(sweep.conditional())
        self._generator = np.random.RandomState()

    def draw(self, trial: int) -> tuple[dict[str, Scalar], dict[str, BaseDistribution]]:
        """Draws a trial. Returns the values and their distributions, by parameter name."""
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
        """Returns the seed from which a trial's random values are drawn."""
        return trial_seed(self.sweep, trial)

    def unconditional(self, trial: int) -> Mapping[str, Scalar] | None:
        """Returns the values of the unconditional parameters; `None` if they are to be drawn at random."""
        del trial
        return None


def drawn_parameters(sweep: Sweep, parameters: type[TrainingParameters], n_trials: int) -> list[TrainingParameters]:
    """Draws the parameters of a sweep's first trials at random, whatever its sampler, and leaves out invalid ones.

    Raises:
        SpecError: If it refuses all of them.
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
    """The unconditional parameters of a sweep, which are drawn together and in their order."""

    def __init__(self, distributions: Mapping[str, BaseDistribution]) -> None:
        self.distributions = dict(distributions)
        # Optuna makes no random draw for a parameter that has only one value, so neither does this class.
        varied = {name: distribution for name, distribution in distributions.items() if not distribution.single()}
        self._single = {
            name: _only_value(distribution) for name, distribution in distributions.items() if distribution.single()
        }
        self._transform = SearchSpaceTransform(varied) if varied else None

    def draw(self, generator: np.random.RandomState) -> dict[str, Scalar]:
        values: dict[str, Scalar] = dict(self._single)
        if self._transform is not None:
            bounds = self._transform.bounds
            values |= self._transform.untransform(generator.uniform(bounds[:, 0], bounds[:, 1]))
        return self.stored(values)

    def stored(self, drawn: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Returns the values as the Optuna study stores them."""
        values = {**drawn, **self._single}
        # Optuna's internal form may round a value, so each value is converted to the internal form and back.
        return {
            name: distribution.to_external_repr(distribution.to_internal_repr(values[name]))
            for name, distribution in self.distributions.items()
        }


def _only_value(distribution: BaseDistribution) -> Scalar:
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[0]
    low: Scalar = distribution.low  # type: ignore[attr-defined]
    return low
