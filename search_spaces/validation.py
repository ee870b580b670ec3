"""Checks a sweep against its workload's declared parameters and outcomes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Dimension, Float, Int, Scalar, Zip
from attnsweep.search_spaces.measured import LossQuantile, OnsetQuantile, Rate, read_constraints
from attnsweep.search_spaces.numbered_draws import MAX_POINTS, GridDraws, drawn_parameters
from attnsweep.search_spaces.replication import Sequential
from attnsweep.search_spaces.sweep import SEVERAL_GOALS, Sweep
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import ONLY_WITH, Parameter, TrainingParameters, unknown_parameter
from attnsweep.workloads.vocabulary import STUCK, Outcome, with_own

_N_SAMPLED = 64

Rule: TypeAlias = tuple[object, str, object, str, str]
"""Whether it is broken; then the error's subject, given, expected and fix."""


def check_sweep(
    sweep: Sweep, parameters: type[TrainingParameters], own_outcomes: Mapping[str, Outcome] = MappingProxyType({})
) -> None:
    """Raises a `SpecError` for the first mistake. `own_outcomes`: those that the workload declares."""
    declared = parameters.declared()
    for name, dimension in sweep.parameters().items():
        if name not in declared:
            given = getattr(dimension, "kind", dimension)
            raise unknown_parameter(name, given, parameters)
        for value in _extremes(dimension):
            declared[name].accept(value)
        for branch in [dimension.then, dimension.otherwise] if isinstance(dimension, Conditional) else [dimension]:
            if isinstance(branch, Categorical) and len({*branch.choices}) < len(branch.choices):
                expected, fix = "each choice once", "remove the repeated choice"
                raise SpecError(f"{name}.choices", given=list(branch.choices), expected=expected, fix=fix)
    for name, condition in sweep.conditional().items():
        _refuse(_broken_conditions(name, condition, sweep))
    for name in ONLY_WITH.keys() & sweep.parameters().keys():
        _check_effect(name, sweep, declared)
    # Each drawn trial is checked again; here at least one must be valid, of each intervention.
    drawn_parameters(sweep, parameters, _N_SAMPLED)
    for text in _extremes(sweep.varied()[INTERVENTION]) if INTERVENTION in sweep.space.keys() & sweep.varied() else []:
        drawn_parameters(sweep.fix({INTERVENTION: text}), parameters, _N_SAMPLED)
    named = [("objective.outcome", objective) for objective in sweep.objectives]
    named += [("constraints", constraint.measured) for constraint in sweep.bounds]
    named += [("target", target.measured) for target in read_constraints(sweep.targets, "target")]
    for subject, measured in named:
        if isinstance(measured, Rate | OnsetQuantile):
            check_outcome(subject, measured.outcome, own_outcomes, is_one=isinstance(measured, OnsetQuantile))
    _refuse(_broken_goals(sweep))
    if sweep.sampler == "grid":
        _check_grid(sweep)
    if sweep.sampler == "boundary":
        _refuse(_broken_by_boundary(sweep))
    if sweep.pruner is not None:
        _refuse(_broken_by_pruner(sweep, f"the pruner {sweep.pruner.kind}"))


def check_outcome(subject: str, outcome: str, own: Mapping[str, Outcome], *, is_one: bool = False) -> None:
    """Raises a `SpecError` about `subject` if no training can end so. `own`: the outcomes that the workload declares;
    `is_one` refuses `stuck`, which stands for several."""
    known = (*(name for name, kind in with_own(own).items() if kind.is_judged), *(() if is_one else (STUCK,)))
    if outcome not in known:
        fix = did_you_mean(outcome, known, otherwise="choose one of these")
        raise SpecError(subject, given=outcome, expected=f"an outcome of the workload: {', '.join(known)}", fix=fix)


def _refuse(rules: Iterator[Rule]) -> None:
    for is_broken, subject, given, expected, fix in rules:
        if is_broken:
            raise SpecError(subject, given=given, expected=expected, fix=fix)


def _broken_goals(sweep: Sweep) -> Iterator[Rule]:
    several = len(sweep.objectives) > 1
    goals, fix = ("several objectives", "name one objective") if several else ("constraints", "drop the constraints")
    has_goals = several or bool(sweep.constraints)
    expected = f"a sampler that supports several objectives and constraints: {', '.join(SEVERAL_GOALS)}"
    is_broken = has_goals and sweep.sampler not in SEVERAL_GOALS
    yield is_broken, "sampler", f"{sweep.sampler} with {goals}", expected, f"use sampler=tpe, or {fix}"
    expected = "no pruner, because pruners compare trials by a single objective"
    yield has_goals and sweep.pruner, "pruner", f"a pruner with {goals}", expected, f"remove the pruner, or {fix}"


def _broken_conditions(name: str, condition: Conditional, sweep: Sweep) -> Iterator[Rule]:
    on, other = condition.on, sweep.parameters().get(condition.on, condition)
    expected = "a parameter of the search space without a condition of its own"
    fix = f"add {on} to the search space, or remove the condition"
    yield isinstance(other, Conditional | Derived), f"{name}.on", on, expected, fix
    expected = "a parameter of single values: a draw from a range equals none of them"
    yield isinstance(other, Float), f"{name}.on", f"{on}, a Float", expected, f"make {on} a Categorical, or an Int"
    values = _values(other)
    never = [value for value in condition.among if value not in values]
    expected, fix = f"values that {on} has in this sweep", "remove this value, or the condition"
    yield never, f"{name}.among", never and never[0], expected, fix


def _values(dimension: Dimension) -> Sequence[Scalar]:
    match dimension:
        case Categorical(choices=choices):
            return choices
        case Int(low=low, high=high):
            return range(low, high + 1)
    assert not isinstance(dimension, Float | Conditional | Zip | Derived)
    return (dimension,)


def _check_effect(name: str, sweep: Sweep, declared: Mapping[str, Parameter]) -> None:
    """Some trial must read the parameter: momentum, for example, has an effect with sgd only."""
    on, readers = ONLY_WITH[name]
    if on in sweep.derived():
        return
    other, dimension = sweep.parameters().get(on, declared[on].default), sweep.parameters()[name]
    values = {*_extremes(other)}
    if isinstance(other, Conditional) and other.otherwise is None:
        values.add(declared[on].default)
    if isinstance(dimension, Conditional) and dimension.on == on:
        values = {value for value in values if dimension.branch(value) is not None}
    if not values & readers:
        given = f"{getattr(dimension, 'kind', dimension)} with {on}={' and '.join(sorted(map(str, values)))}"
        expected = f"{on} among {', '.join(sorted(readers))}, without which {name} has no effect"
        raise SpecError(name, given=given, expected=expected, fix=f"remove {name}, or change {on}")


def _check_grid(sweep: Sweep) -> None:
    for name in sweep.conditional():
        fix = "use sampler=random or tpe, or run two sweeps: one with and one without the parameter"
        raise SpecError(name, given="a condition, with sampler=grid", expected="a space without conditions", fix=fix)
    for name, dimension in sweep.drawn().items():
        _refuse(_broken_points(name, dimension))
    # Not the distinct points, which may be fewer in an `Int`: listing them may take too much memory.
    n_points = math.prod(
        len(dimension.choices) if isinstance(dimension, Categorical) else dimension.points or 1
        for dimension in sweep.drawn().values()
    )
    if n_points > MAX_POINTS:
        expected, fix = f"at most {MAX_POINTS:,} points", "lower `points`, or use sampler=random or qmc"
        raise SpecError("space", given=f"a grid of {n_points:,} points", expected=expected, fix=fix)
    n_points = GridDraws(sweep).n_points
    if sweep.trials > n_points:
        expected, fix = f"1 to {n_points}, the points of the grid", "lower the number of trials, or add points"
        raise SpecError("trials", given=sweep.trials, expected=expected, fix=fix)


def _broken_points(name: str, dimension: Categorical | Float | Int) -> Iterator[Rule]:
    if isinstance(dimension, Categorical):
        return
    low, high = dimension.low, dimension.high
    expected = "the number of grid points, which sampler=grid needs"
    fix = f"write {type(dimension).__name__}(low={low:g}, high={high:g}, points=8)"
    yield dimension.points is None, f"{name}.points", None, expected, fix
    is_far = isinstance(dimension, Float) and dimension.log and not math.isfinite(high / low)
    yield is_far, name, f"{low:g} to {high:g}", "log=True where high / low is a float", "make the range narrower"


def _broken_by_boundary(sweep: Sweep) -> Iterator[Rule]:
    [objective] = sweep.objectives
    expected = "a rate as the objective, because sampler=boundary searches for a rate of 1/2"
    fix = 'write objective=StuckRate() or Rate("solved"), or use sampler=tpe'
    yield isinstance(objective, LossQuantile | OnsetQuantile), "objective", objective.kind, expected, fix
    has_range = any(isinstance(dimension, Float | Int) for dimension in sweep.varied().values())
    given = ", ".join(sweep.varied()) or "no varied parameter"
    expected = "a Float or Int without a condition, whose range sampler=boundary searches"
    yield not has_range, "space", given, expected, "add such a parameter, or use sampler=random"


def _broken_by_pruner(sweep: Sweep, pruner: str) -> Iterator[Rule]:
    [objective] = sweep.objectives
    given = f"{pruner} with the objective {objective.label}"
    expected = "an objective whose value is known before a training ends"
    fix = "write objective=LossQuantile(), or remove the pruner"
    yield isinstance(objective, OnsetQuantile), "pruner", given, expected, fix
    is_biased = not isinstance(objective, LossQuantile) and not sweep.prune_anyway
    expected = "an objective of losses: pruning would bias a rate, as slow trainings are solved late"
    fix = "write objective=LossQuantile(), or prune_anyway=True: docs/sweeps.md"
    yield is_biased, "pruner", given, expected, fix
    is_sequential, expected = isinstance(sweep.replicates, Sequential), "a fixed number of replicates, with a pruner"
    yield is_sequential, "replicates", "a Sequential", expected, "write for example replicates=8"
    expected = "another sampler, because sampler=boundary learns only from trials that are not pruned"
    yield sweep.sampler == "boundary", "sampler", "boundary", expected, "use sampler=tpe, or remove the pruner"


def _extremes(dimension: Dimension) -> list[Scalar]:
    match dimension:
        case Categorical(choices=choices):
            return list(choices)
        case Float(low=low, high=high) | Int(low=low, high=high):
            return [low, high]
        case Conditional(then=then, otherwise=otherwise):
            return _extremes(then) + ([] if otherwise is None else _extremes(otherwise))
        case Zip(rows=rows):
            return [value for row in rows for value in row]
        case Derived():
            return []
    return [dimension]
