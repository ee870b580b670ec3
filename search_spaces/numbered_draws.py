"""Draws trials for the samplers `random`, `qmc` and `grid`: a trial is a function of the sweep's seed and its number,
so each of a hundred drivers draws what a single one would."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution

from attnsweep.search_spaces.dimensions import Categorical, Float, Int, Scalar, Varied
from attnsweep.search_spaces.suggestion import (
    distributions,
    distributions_of,
    is_allowed,
    trial_seed,
    undrawn,
    values_of,
)
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.parameters import TrainingParameters

_MAX_DRAWS = 10_000
"""How often a trial is drawn until it meets the sweep's `where`."""
MAX_POINTS = 100_000
"""Of a grid, and of a space of choices from which `random` draws each point before it draws one again."""


class RandomDraws:
    """By the trial's own seed; if all parameters are choices, the points in a random order, over and over."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep, self._drawn, self._distributions = sweep, sweep.drawn(), distributions(sweep)
        self._is_conditional = bool(sweep.conditional())
        self._points = self._listed()
        self._allowed: list[int] = []

    def draw(self, trial: int) -> tuple[dict[str, Scalar], dict[str, BaseDistribution]]:
        """Values and their distributions. Raises a `SpecError` if the formulas allow no point."""
        if self._points is not None:
            drawn = self._points[trial % len(self._points)]
        else:
            drawn = self._at(self._number(trial) if self._sweep.where else trial)
        return drawn, distributions_of(self._sweep, drawn) if self._is_conditional else self._distributions

    def _listed(self) -> list[dict[str, Scalar]] | None:
        every = [*self._sweep.drawn().values()]
        branches = [each for one in self._sweep.conditional().values() for each in (one.then, one.otherwise)]
        varied = every + [each for each in branches if isinstance(each, Varied)]
        if not all(isinstance(each, Categorical) for each in varied):
            return None
        if math.prod(len(each.grid()) for each in varied) > MAX_POINTS:
            return None
        return self._in_random_order(self._choices({}))

    def _choices(self, drawn: dict[str, Scalar]) -> Iterator[dict[str, Scalar]]:
        missing = undrawn(self._sweep, drawn)
        if not missing:
            yield drawn
            return
        for point in itertools.product(*(dimension.grid() for dimension in missing.values())):
            yield from self._choices(drawn | dict(zip(missing, point, strict=True)))

    def _in_random_order(self, points: Iterator[dict[str, Scalar]]) -> list[dict[str, Scalar]]:
        allowed = [point for point in points if is_allowed(self._sweep, point)]
        if not allowed:
            raise self._nothing()
        order = np.random.default_rng(self._sweep.seed).permutation(len(allowed))
        return [allowed[index] for index in order]

    def _number(self, trial: int) -> int:
        """Of the draw that is number `trial` among those that `where` allows."""
        while len(self._allowed) <= trial:
            first = self._allowed[-1] + 1 if self._allowed else 0
            numbers = range(first, first + _MAX_DRAWS)
            found = next((number for number in numbers if is_allowed(self._sweep, self._at(number))), None)
            if found is None:
                raise self._nothing()
            self._allowed.append(found)
        return self._allowed[trial]

    def _nothing(self) -> SpecError:
        try:
            self._sweep.completed(values_of(self._sweep, self._at(0)))
        except SpecError as error:
            return error
        formulas, expected = " and ".join(self._sweep.where), "formulas that a point of the space meets"
        return SpecError("where", given=formulas, expected=expected, fix="correct them, or widen the space")

    def _at(self, number: int) -> dict[str, Scalar]:
        generator = np.random.default_rng(trial_seed(self._sweep, number))
        shares = zip(self._drawn.items(), self._shares(number, generator), strict=True)
        drawn = {name: _value(dimension, share) for (name, dimension), share in shares}
        while self._is_conditional and (missing := undrawn(self._sweep, drawn)):
            drawn |= {name: _value(dimension, generator.random()) for name, dimension in missing.items()}
        return drawn

    def _shares(self, number: int, generator: np.random.Generator) -> list[float]:
        del number
        shares: list[float] = generator.random(len(self._drawn)).tolist()
        return shares


def _value(dimension: Varied, share: float) -> Scalar:
    """The value below which this share of all draws lies; of choices, in their order."""
    match dimension:
        case Categorical(choices=choices):
            return choices[min(math.floor(share * len(choices)), len(choices) - 1)]
        case Float(low=low, high=high, log=True):
            value = math.exp(math.log(low) * (1 - share) + math.log(high) * share)
        case Float(low=low, high=high):
            value = low * (1 - share) + high * share
        case Int(low=low, high=high, log=True):
            value = math.exp(math.log(low - 0.5) * (1 - share) + math.log(high + 0.5) * share)
        case Int(low=low, high=high):
            return low + min(math.floor(share * (high - low + 1)), high - low)
    clipped = min(max(value, low), high)
    return round(clipped) if isinstance(dimension, Int) else clipped


def drawn_parameters(sweep: Sweep, parameters: type[TrainingParameters], n_trials: int) -> list[TrainingParameters]:
    """Of the first trials, drawn at random whatever the sampler; raises a `SpecError` if all are invalid."""
    draws, accepted, refusal = RandomDraws(sweep), [], None
    for trial in range(n_trials):
        drawn, _ = draws.draw(trial)
        try:
            accepted.append(parameters.resolve(sweep.completed(values_of(sweep, drawn))))
        except SpecError as error:
            refusal = error
    if not accepted and refusal is not None:
        raise refusal
    return accepted


def draws_of(sweep: Sweep) -> RandomDraws:
    """For the samplers `random`, `qmc` and `grid`."""
    return {"qmc": _QuasiRandomDraws, "grid": GridDraws}.get(sweep.sampler, RandomDraws)(sweep)


class _QuasiRandomDraws(RandomDraws):
    """Unconditional parameters are quasi-random, others random."""

    _sequence: Any = None

    def _listed(self) -> list[dict[str, Scalar]] | None:
        return None

    def _shares(self, number: int, generator: np.random.Generator) -> list[float]:
        del generator
        if not self._drawn:
            return []
        # PyTorch is loaded anyway; SciPy's sequence would take half a second to import.
        import torch

        if self._sequence is None or self._sequence.num_generated > number:
            self._sequence = torch.quasirandom.SobolEngine(len(self._drawn), scramble=True, seed=self._sweep.seed)
        if n_skipped := number - self._sequence.num_generated:
            self._sequence.fast_forward(n_skipped)
        shares: list[float] = self._sequence.draw(dtype=torch.float64)[0].tolist()
        return shares


class GridDraws(RandomDraws):
    """Each point once, in a random order."""

    def _listed(self) -> list[dict[str, Scalar]] | None:
        return self._in_random_order(self._choices({}))

    @property
    def n_points(self) -> int:
        """Points that the formulas allow."""
        return len(self._points or ())
