"""What each training must be, recomputed: parameters from the study, seed from the sweep's, id from both."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from optuna.trial import FrozenTrial

from attnsweep.orchestrator.audit.check_trials import COPIED, RESTORE
from attnsweep.orchestrator.audit.evidence import Books
from attnsweep.orchestrator.audit.problems import Faults, Problem
from attnsweep.orchestrator.training.identity import Task, tasks_of, training_id
from attnsweep.search_spaces.suggestion import undrawn, values_of
from attnsweep.workloads.errors import SpecError

_FOREIGN = "trainings of another sweep"
_SEED = "trainings with another seed than the sweep gives them"
_ID = "trainings whose id is not that of their parameters and seed"
_PARAMETER = "trainings with another value of {} than the study has"
_ILLEGAL = "trials whose values the workload refuses by now"
_UNDRAWN = "trials of which the study lacks a parameter"

_NOT_CHECKED = "not checked: parameters, seeds and ids: the workload declares {} otherwise than when it was trained"
_OLD_VERSION = "audit it with the version of attnsweep and of the workload in sweep.json"


def compare_trainings(books: Books) -> tuple[Problem, ...]:
    """The trainings that are not what the study and the sweep's seed make of them."""
    if not books.rows.num_rows:
        return ()
    parameters = books.workload.parameters
    declared = parameters.declared()
    stored = {name.removeprefix("param_") for name in books.rows.column_names if name.startswith("param_")}
    # Rows need not have a parameter that came later, and may have one that was retired.
    needed = {name for name, each in declared.items() if each.since is None}
    if changed := sorted((needed - stored) | (stored - {*declared, *parameters.retired()})):
        return (Problem(_NOT_CHECKED.format(", ".join(changed)), _OLD_VERSION),)
    fixes = {_FOREIGN: COPIED, _SEED: RESTORE, _ID: RESTORE, _ILLEGAL: _OLD_VERSION, _UNDRAWN: "restore the study"}
    faults = Faults(fixes | {_PARAMETER.format(name): f"{RESTORE}, or the study" for name in sorted(declared)})
    tasks, places = _expected(books, faults)
    rows = books.rows.take(pa.array(places, pa.int64()))
    for kind, is_wrong in _compared(books, tasks, rows):
        wrong = [tasks[each] for each in np.flatnonzero(is_wrong)]
        faults.add(kind, *(f"{task.trial}/{task.replicate}" for task in wrong))
    return faults.problems()


def _expected(books: Books, faults: Faults) -> tuple[list[Task], list[int]]:
    """What the rows of the trials asked for should be of, and the places of these rows."""
    tasks: list[Task] = []
    places: list[int] = []
    for trial in books.asked:
        place = books.places.get(trial.number)
        if place is None or undrawn(books.directory.spec, trial.params):
            # What was half drawn `compare_trials` reports.
            continue
        try:
            tasks += _tasks(trial, books, books.rows["replicate"].slice(place.start, len(place)).to_pylist())
        except SpecError as error:
            faults.add(_ILLEGAL, f"{trial.number} ({error})")
        except (ValueError, KeyError) as error:
            # Optuna's for a parameter that the trial does not have, ours for the one that another depends on.
            faults.add(_UNDRAWN, f"{trial.number} ({error})")
        else:
            places += place
    return tasks, places


def _tasks(trial: FrozenTrial, books: Books, replicates: Sequence[int]) -> list[Task]:
    values = values_of(books.directory.spec, trial.params)
    return tasks_of(books.directory, books.workload.parameters, trial.number, values, replicates)


def _compared(books: Books, tasks: Sequence[Task], rows: pa.Table) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """By kind of fault, which of the rows have it."""
    trainings = [task.training for task in tasks]
    yield _FOREIGN, _differ(rows["sweep"], [books.directory.sweep] * len(tasks))
    yield _SEED, _differ(rows["seed"], [training.seed for training in trainings])
    ids = [training_id(books.workload.name, training.parameters, training.seed) for training in trainings]
    yield _ID, _differ(rows["training_id"], ids)
    for name, declared in books.workload.parameters.declared().items():
        if f"param_{name}" in rows.column_names:
            stored = rows[f"param_{name}"]
            values = [getattr(training.parameters, name) for training in trainings]
            if declared.since is not None:
                # Null in the rows of versions before it.
                values = [
                    None if null and value == declared.default else value
                    for null, value in zip(stored.is_null().to_pylist(), values, strict=True)
                ]
            yield _PARAMETER.format(name), _differ(stored, values)


def _differ(stored: pa.ChunkedArray, expected: list[Any]) -> NDArray[np.bool_]:
    """Where a column is not as expected; null is equal to null alone."""
    kind = pa.string() if pa.types.is_dictionary(stored.type) else stored.type
    a, b = stored.cast(kind), pa.chunked_array([pa.array(expected, kind)])
    is_other = pc.if_else(pc.and_(a.is_valid(), b.is_valid()), pc.not_equal(a, b), pc.xor(a.is_valid(), b.is_valid()))
    return np.asarray(is_other)
