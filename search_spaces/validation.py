"""Checks a sweep against the declarations of its workload: parameters and outcomes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attnsweep.search_spaces.dimensions import Categorical, Conditional, Derived, Dimension, Float, Int, Scalar, Zip
from attnsweep.search_spaces.measured import LossQuantile, OnsetQuantile, Rate, read_constraints
from attnsweep.search_spaces.numbered_draws import MOST_POINTS, GridDraws, drawn_parameters
from attnsweep.search_spaces.replication import Sequential
from attnsweep.search_spaces.sweep import SEVERAL_GOALS, Sweep
from attnsweep.workloads.errors import SpecError, did_you_mean
from attnsweep.workloads.interventions import INTERVENTION
from attnsweep.workloads.parameters import ONLY_WITH, Parameter, TrainingParameters, unknown_parameter
from attnsweep.workloads.registry import parameters_of_others
from attnsweep.workloads.vocabulary import STUCK, Outcome, with_own

_MOST_COMBINATIONS = 4096
_N_SAMPLED = 64


def check_sweep(
    sweep: Sweep, parameters: type[TrainingParameters], own_outcomes: Mapping[str, Outcome] = MappingProxyType({})
) -> None:
    """Checks each dimension against the workload's parameters, and the grid's points against the trials.

    Raises a `SpecError` for the first mistake. `own_outcomes` are those that the workload declares.
    """
    declared = parameters.declared()
    for name, dimension in sweep.parameters().items():
        if name not in declared:
            given = getattr(dimension, "kind", dimension)
            raise unknown_parameter(name, given, parameters, parameters_of_others(sweep.workload))
        for value in _extremes(dimension):
            declared[name].accept(value)
        for branch in [dimension.then, dimension.otherwise] if isinstance(dimension, Conditional) else [dimension]:
            if isinstance(branch, Categorical):
                _check_choices(name, branch.choices)
            if isinstance(branch, Categorical) and branch.weights and sweep.sampler not in ("random", "qmc"):
                expected = "no weights, which only the samplers random and qmc draw by"
                fix = "use sampler=random, or remove the weights"
                raise SpecError(f"{name}.weights", given=list(branch.weights), expected=expected, fix=fix)
    for name, condition in sweep.conditional().items():
        _check_condition(name, condition, sweep)
    for name in ONLY_WITH.keys() & sweep.parameters().keys():
        _check_effect(name, sweep, declared)
    _check_combinations(sweep, parameters)
    # Interventions are checked here, when the sweep is made. Otherwise each trial with an intervention after the last
    # step would be refused when it is drawn.
    for text in _extremes(sweep.varied()[INTERVENTION]) if INTERVENTION in sweep.space.keys() & sweep.varied() else []:
        _check_combinations(sweep.fix({INTERVENTION: text}), parameters)
    named = [("objective.outcome", objective) for objective in sweep.objectives]
    named += [("constraints", constraint.measured) for constraint in sweep.bounds]
    named += [("target", target.measured) for target in read_constraints(sweep.targets, "target")]
    for subject, measured in named:
        if isinstance(measured, Rate | OnsetQuantile):
            check_outcome(subject, measured.outcome, own_outcomes, is_one=isinstance(measured, OnsetQuantile))
    if len(sweep.objectives) > 1:
        _check_goals(sweep, "several objectives", "name one objective")
    if sweep.constraints:
        _check_goals(sweep, "constraints", "drop the constraints")
    if sweep.sampler == "grid":
        _check_grid(sweep)
    if sweep.sampler == "boundary":
        _check_boundary(sweep)
    if sweep.pruner is not None:
        _check_pruned(sweep)


def check_outcome(subject: str, outcome: str, own: Mapping[str, Outcome], *, is_one: bool = False) -> None:
    """Raises a `SpecError` in field `subject` if the workload cannot end so.

    `own` are the outcomes that it declares; `is_one` refuses `stuck`, which stands for several.
    """
    known = (*(name for name, kind in with_own(own).items() if kind.is_judged), *(() if is_one else (STUCK,)))
    if outcome not in known:
        fix = did_you_mean(outcome, known, otherwise="choose one of these")
        raise SpecError(subject, given=outcome, expected=f"an outcome of the workload: {', '.join(known)}", fix=fix)


def _check_goals(sweep: Sweep, goals: str, other_fix: str) -> None:
    if sweep.sampler not in SEVERAL_GOALS:
        samplers = ", ".join(SEVERAL_GOALS)
        expected = f"a sampler that supports several objectives and constraints: {samplers}"
        fix = f"use sampler=tpe, or {other_fix}"
        raise SpecError("sampler", given=f"the sampler {sweep.sampler} with {goals}", expected=expected, fix=fix)
    if sweep.pruner is not None:
        expected = "a sweep without a pruner, because pruners compare trials by a single objective"
        fix = f"remove the pruner, or {other_fix}"
        raise SpecError("pruner", given=f"the pruner {sweep.pruner.kind} with {goals}", expected=expected, fix=fix)


def _check_choices(name: str, choices: Sequence[Scalar]) -> None:
    for index, choice in enumerate(choices):
        # As in Optuna, 1, 1.0 and True count as equal choices.
        if choice in choices[:index]:
            raise SpecError(
                f"{name}.choices", given=choice, expected="each choice once", fix="remove the repeated choice"
            )


def _check_combinations(sweep: Sweep, parameters: type[TrainingParameters]) -> None:
    """Checks that at least one combination of the swept values is valid. Each drawn trial is checked again later."""
    if sweep.where or sweep.derived():
        drawn_parameters(sweep, parameters, _N_SAMPLED)
        return
    axes = {name: _extremes(dimension) for name, dimension in sweep.drawn().items()}
    refusal: SpecError | None = None
    for point in itertools.islice(itertools.product(*axes.values()), _MOST_COMBINATIONS):
        values = sweep.fixed() | sweep.unzipped(dict(zip(axes, point, strict=True)))
        for name, condition in sweep.conditional().items():
            if (branch := condition.branch(values[condition.on])) is not None:
                values[name] = _extremes(branch)[0]
        try:
            parameters.resolve(values)
        except SpecError as error:
            refusal = error
        else:
            return
    if refusal is not None:
        raise refusal


def _check_condition(name: str, condition: Conditional, sweep: Sweep) -> None:
    other = sweep.parameters().get(condition.on, condition)
    if isinstance(other, Conditional | Derived):
        expected = "a parameter of the search space without a condition of its own"
        fix = f"add the parameter {condition.on} to the search space, or remove the condition"
        raise SpecError(f"{name}.on", given=condition.on, expected=expected, fix=fix)
    if isinstance(other, Float):
        expected = "a parameter that takes single values, because a draw from a range equals none of them"
        fix = f"make {condition.on} a Categorical, or an Int"
        raise SpecError(f"{name}.on", given=f"{condition.on}, a Float", expected=expected, fix=fix)
    values = _values(other)
    if never := [value for value in condition.among if value not in values]:
        expected = f"values that {condition.on} has in this sweep"
        raise SpecError(f"{name}.among", given=never[0], expected=expected, fix="remove this value, or the condition")
    if condition.otherwise is not None and all(value in condition.among for value in values):
        given = getattr(condition.otherwise, "kind", condition.otherwise)
        expected = f"nothing, because `among` has all values of {condition.on}"
        raise SpecError(f"{name}.otherwise", given=given, expected=expected, fix="remove otherwise, or the condition")


def _values(dimension: Dimension) -> Sequence[Scalar]:
    match dimension:
        case Categorical(choices=choices):
            return choices
        case Int(low=low, high=high):
            return range(low, high + 1)
    assert not isinstance(dimension, Float | Conditional | Zip | Derived)
    return (dimension,)


def _check_effect(name: str, sweep: Sweep, declared: Mapping[str, Parameter]) -> None:
    """Checks that some trial reads the parameter: momentum has an effect with sgd only."""
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
        have = " and ".join(sorted(map(str, values)))
        given = f"{getattr(dimension, 'kind', dimension)} with {on}={have}"
        expected = f"{on} among {', '.join(sorted(readers))}, without which {name} has no effect"
        raise SpecError(name, given=given, expected=expected, fix=f"remove {name}, or change {on}")


def _check_grid(sweep: Sweep) -> None:
    for name in sweep.conditional():
        expected = "a search space without conditions, as sampler=grid needs it"
        fix = "use sampler=random or sampler=tpe, or run two sweeps: one with and one without the parameter"
        raise SpecError(name, given="a parameter with a condition, with sampler=grid", expected=expected, fix=fix)
    for name, dimension in sweep.drawn().items():
        if isinstance(dimension, Float | Int) and dimension.points is None:
            expected = "the number of grid points of this parameter, which sampler=grid needs"
            fix = f"write {type(dimension).__name__}(low={dimension.low:g}, high={dimension.high:g}, points=8)"
            raise SpecError(f"{name}.points", given=None, expected=expected, fix=fix)
        if isinstance(dimension, Float) and dimension.log and not math.isfinite(dimension.high / dimension.low):
            expected = "a range with log=True in which high / low is not too large for a float"
            fix = "make the range narrower"
            raise SpecError(name, given=f"{dimension.low:g} to {dimension.high:g}", expected=expected, fix=fix)
    # Several grid points of an `Int` parameter may be the same whole number, so `n_points` may be too high. The
    # distinct points are not counted, because listing them may take too much memory.
    n_points = math.prod(
        len(dimension.choices) if isinstance(dimension, Categorical) else dimension.points or 1
        for dimension in sweep.drawn().values()
    )
    if n_points > MOST_POINTS:
        expected = f"a grid of at most {MOST_POINTS:,} points"
        fix = "lower the field `points` of a parameter, or use sampler=random or sampler=qmc"
        raise SpecError("space", given=f"a grid of {n_points:,} points", expected=expected, fix=fix)
    n_points = GridDraws(sweep).n_points
    if sweep.trials > n_points:
        expected = f"1 to {n_points} trials, because the grid has {n_points} points"
        fix = "lower the number of trials, or add points to the grid"
        raise SpecError("trials", given=sweep.trials, expected=expected, fix=fix)


def _check_boundary(sweep: Sweep) -> None:
    [objective] = sweep.objectives
    if isinstance(objective, LossQuantile | OnsetQuantile):
        expected = "a rate as the objective, because sampler=boundary searches for parameters with a rate of 1/2"
        fix = 'write objective=StuckRate() or Rate("solved"), or use sampler=tpe'
        raise SpecError("objective", given=objective.kind, expected=expected, fix=fix)
    if not any(isinstance(dimension, Float | Int) for dimension in sweep.varied().values()):
        expected = "a Float or Int parameter without a condition, because sampler=boundary searches its range"
        fix = "add such a parameter, or use sampler=random"
        raise SpecError("space", given=", ".join(sweep.varied()) or "no varied parameter", expected=expected, fix=fix)


def _check_pruned(sweep: Sweep) -> None:
    [objective] = sweep.objectives
    given = f"the pruner {sweep.pruner and sweep.pruner.kind} with the objective {objective.label}"
    if isinstance(objective, OnsetQuantile):
        expected = "an objective whose value is known before a training ends, because a pruner stops trainings early"
        fix = "write objective=LossQuantile(), or remove the pruner"
        raise SpecError("pruner", given=given, expected=expected, fix=fix)
    if not isinstance(objective, LossQuantile) and not sweep.prune_anyway:
        expected = "an objective of losses: pruning would bias a rate, as slow trainings are solved late"
        fix = "write objective=LossQuantile(), or prune_anyway=True (--prune-anyway): docs/pruning.md"
        raise SpecError("pruner", given=given, expected=expected, fix=fix)
    if isinstance(sweep.replicates, Sequential):
        expected = "a fixed number of replicates, because a pruner compares trials with equally many trainings"
        fix = "write for example replicates=8, or remove the pruner"
        raise SpecError("replicates", given="a rule Sequential together with a pruner", expected=expected, fix=fix)
    if sweep.sampler == "boundary":
        expected = "another sampler, because sampler=boundary learns only from trials that are not pruned"
        raise SpecError("sampler", given=sweep.sampler, expected=expected, fix="use sampler=tpe, or remove the pruner")


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
