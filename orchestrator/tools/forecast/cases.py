"""Splits a sweep into cases: sets of trainings that differ only in init_sigma and seed, each with values of init_sigma
to forecast.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Dimension, Float, Scalar, Varied
from attnsweep.search_spaces.suggestion import undrawn, values_of
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import TrainingParameters

_SCALE = "init_sigma"
_POINTS = 5
_MOST_CASES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One case of a forecast: trainings that differ only in `init_sigma` and seed.

    Attributes:
        chosen: The values of the parameters that vary besides init_sigma; for a range its middle.
        parameters: The parameters of the trainings, without an intervention.
        sigmas: The values of init_sigma, falling; for a range five values from its upper to its lower end.
    """

    chosen: Mapping[str, Scalar]
    parameters: TrainingParameters
    sigmas: tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Cases:
    """The first cases of a sweep, and the number of all its cases.

    Attributes:
        cases: At most eight cases.
        n_all: The number of cases that the sweep has.
        leaves_out_interventions: Whether the sweep has trainings with interventions, which the cases are without.
    """

    cases: tuple[Case, ...]
    n_all: int
    leaves_out_interventions: bool


def cases_of(spec: Sweep, workload: Workload[Any]) -> Cases:
    """Returns the first eight combinations of a sweep's choices that can be trained. Each range counts with its middle.

    Raises:
        SpecError: If no combination can be trained.
    """
    axes = {name: _values(dimension) for name, dimension in spec.drawn().items()}
    axes[_SCALE] = axes.get(_SCALE, [None])[:1]
    cases: list[Case] = []
    refusal, has_interventions = None, False
    for point in itertools.product(*axes.values()):
        drawn = dict(zip(axes, point, strict=True))
        while missing := undrawn(spec, drawn):
            drawn |= {name: _values(dimension)[0] for name, dimension in missing.items()}
        values = values_of(spec, drawn)
        has_interventions |= values.get(INTERVENTION) is not None
        try:
            parameters = workload.parameters.resolve(values | {INTERVENTION: None})
        except SpecError as error:
            refusal = error
            continue
        varies = [*spec.varied(), *spec.conditional()]
        chosen = {name: values[name] for name in varies if name in values and name not in (_SCALE, INTERVENTION)}
        case = Case(chosen=chosen, parameters=parameters, sigmas=_sigmas(spec, parameters, values))
        if case not in cases:
            cases.append(case)
    if not cases and refusal is not None:
        raise refusal
    return Cases(cases=tuple(cases[:_MOST_CASES]), n_all=len(cases), leaves_out_interventions=has_interventions)


def _values(dimension: Varied) -> list[Scalar]:
    """Returns all choices of a parameter, or the middle of its range."""
    if isinstance(dimension, Categorical):
        return list(dimension.choices)
    return dimension.model_copy(update={"points": 1}).grid()


def _sigmas(spec: Sweep, parameters: TrainingParameters, values: Mapping[str, Scalar]) -> tuple[float | None, ...]:
    dimension: Dimension | None = spec.space.get(_SCALE, parameters.init_sigma)
    if isinstance(dimension, Conditional):
        branch = dimension.then if values.get(dimension.on) in dimension.among else dimension.otherwise
        dimension = parameters.init_sigma if branch is None else branch
    if isinstance(dimension, Float):
        sigmas = dimension.model_copy(update={"points": _POINTS}).grid()
    elif isinstance(dimension, Categorical):
        sigmas = list(dimension.choices)
    else:
        sigmas = [parameters.init_sigma]
    numbers = {float(sigma) for sigma in sigmas if isinstance(sigma, int | float)}
    return (*sorted(numbers, reverse=True), *([None] if None in sigmas else []))
