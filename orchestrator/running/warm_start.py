"""Reads trials of finished sweeps, from which a new sweep's sampler learns."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState, create_trial

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import JUDGING_COLUMNS, complete_among, ended_trainings
from attnsweep.orchestrator.storage.copies import full_name, name_of
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument
from attnsweep.orchestrator.storage.sources import WARM_START, EarlierSweep, ToldTrial, WarmStart
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.dimensions import Categorical, Scalar, Varied, Zip
from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.suggestion import distributions_of, undrawn, values_of
from attnsweep.search_spaces.sweep import Sweep, zipped_names
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import TrainingParameters

_FLAG = "--warm-start"
_LEARN_FROM_OTHERS = ("tpe", "boundary")


def warm_start(
    spec: Sweep,
    parameters: type[TrainingParameters],
    places: Sequence[PlaceName],
    say: Callable[[str], object],
) -> WarmStart | None:
    """`None` without any places. `say` gets a line on each sweep. Raises UserError unless the sampler learns from other
    sweeps, and each of these is finished and has trials that the new one may draw."""
    if not places:
        return None
    if spec.sampler not in _LEARN_FROM_OTHERS:
        given = f"sampler={spec.sampler}, which learns nothing from the trials of other sweeps"
        expected = "a sampler that learns from earlier trials: tpe or boundary"
        raise UserError(_FLAG, given=given, expected=expected, fix="change the sampler, or leave out --warm-start")
    return WarmStart(sweeps=tuple(_told(spec, parameters, place, say) for place in places))


def told_trials(directory: SweepDirectory) -> list[FrozenTrial]:
    """As Optuna's. Raises UserError if the file that holds them is not the one that the sweep recorded."""
    if not directory.warm_start:
        return []
    try:
        stored = WARM_START.read(directory.place)
    except FileNotFoundError:
        stored = None
    if stored is None or stored.sha256 != directory.warm_start:
        given = "a missing file" if stored is None else "other trials than those that the sweep recorded"
        expected = "the file with the trials of other sweeps from which the sampler learned before its first draw"
        fix = "restore the file from a copy"
        raise UserError(f"{directory.place}/{WARM_START.name}", given=given, expected=expected, fix=fix)
    return [
        create_trial(
            state=TrialState.COMPLETE,
            values=list(trial.values),
            constraints=dict(trial.excess),
            params=dict(trial.drawn),
            distributions=distributions_of(directory.spec, trial.drawn),
            user_attrs={N_JUDGED: trial.n_judged},
        )
        for sweep in stored.sweeps
        for trial in sweep.told
    ]


def _told(
    spec: Sweep, parameters: type[TrainingParameters], where: PlaceName, say: Callable[[str], object]
) -> EarlierSweep:
    earlier = SweepDirectory.open(where)
    name = name_of(earlier.place)
    if not earlier.finished:
        fix = f"finish this sweep with: attnsweep resume {as_argument(earlier.place)}"
        raise UserError(_FLAG, given=f"the unfinished sweep {name}", expected="a finished sweep", fix=fix)
    # A file's folder is left out of the comparison: it may have been moved.
    theirs, ours = (sweep.workload.rpartition(":")[2] for sweep in (earlier.spec, spec))
    if theirs != ours:
        given, expected = f"the sweep {name} of the workload {theirs}", f"a sweep of the workload {ours}"
        raise UserError(_FLAG, given=given, expected=expected, fix="give the directory of another sweep")
    ledger = Ledger(earlier.place)
    columns = [name for name in ledger.tables()["trainings"].schema.names if name.startswith("param_")]
    rows = ledger.trainings(columns=[*JUDGING_COLUMNS, *columns])
    row_of, ended = {row["trial"]: row for row in rows.to_pylist()}, ended_trainings(rows)
    told, misfits = [], []
    for trial in complete_among(rows, earlier.spec.replicates):
        if (values := ended[trial].told(spec)) is None:
            continue
        try:
            drawn = _drawn(spec, parameters, row_of[trial])
        except _MisfitError as misfit:
            misfits.append(f"trial {trial} has {misfit}")
            continue
        n_judged = len(ended[trial].judged)
        told.append(ToldTrial(trial=trial, drawn=drawn, values=values.values, excess=values.excess, n_judged=n_judged))
    if not told:
        given = f"{name}, whose {misfits[0]}" if misfits else f"{name}, where no trial has a value"
        fix = "change the search space to that of the earlier sweep, or name another directory"
        raise UserError(_FLAG, given=given, expected="trials that this sweep could draw", fix=fix)
    left_out = f"; {len(misfits)} others do not fit: {misfits[0]}" if misfits else ""
    say(f"gave the sampler {len(told)} trials of {name}{left_out}")
    return EarlierSweep(
        place=full_name(earlier.place), sweep=earlier.sweep, spec_sha256=earlier.spec_sha256, told=tuple(told)
    )


class _MisfitError(Exception):
    """Raised for a trial of an earlier sweep that the new sweep could not have drawn."""


def _drawn(spec: Sweep, parameters: type[TrainingParameters], row: Mapping[str, Any]) -> dict[str, Scalar]:
    recorded = parameters.recorded(row)
    drawn = drawn_in(spec, recorded.values())
    try:
        resolved = parameters.resolve(values_of(spec, drawn))
    except SpecError as refused:
        raise _MisfitError(f"values that the workload refuses: {refused}") from None
    effective = resolved.effective()
    for name, value in recorded.effective().items():
        if (expected := effective[name]) != value:
            raise _MisfitError(f"the value {name}={value!r}, while the new sweep has the value {expected!r}")
    return drawn


def drawn_in(spec: Sweep, has: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What a sampler drew for a trial with these parameters."""
    drawn: dict[str, Scalar] = {}
    while missing := undrawn(spec, drawn):
        drawn |= {name: _value(spec, name, dimension, has) for name, dimension in missing.items()}
    return drawn


def _value(spec: Sweep, name: str, dimension: Varied, has: Mapping[str, Scalar]) -> Scalar:
    zipped = spec.space.get(name)
    if isinstance(zipped, Zip):
        row = tuple(has[column] for column in zipped_names(name))
        fitting = [text for text, each in zip(zipped.drawn().choices, zipped.rows, strict=True) if each == row]
        if not fitting:
            raise _MisfitError(f"the values {name}={row}, which are no row of the new sweep's Zip")
        return fitting[0]
    value = has[name]
    if isinstance(dimension, Categorical):
        fits = value in dimension.choices
    else:
        fits = isinstance(value, int | float) and dimension.low <= value <= dimension.high
    if not fits:
        raise _MisfitError(f"the value {name}={value!r}, which the new sweep could not draw")
    return value
