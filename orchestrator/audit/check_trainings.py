"""Recomputes each training: its parameters from the study, its seed from the sweep's seed, and its id from both."""

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
from attnsweep.orchestrator.training.tasks import Task, tasks_of, training_id
from attnsweep.search_spaces.suggestion import undrawn, values_of
from attnsweep.workloads.errors import SpecError

_FOREIGN = "trainings of another sweep"
_SEED = "trainings with another seed than the sweep gives them"
_ID = "trainings whose id is not that of their parameters and seed"
_PARAMETER = "trainings with another value of {} than the study has"
_ILLEGAL = "trials whose values the workload now refuses"
_UNDRAWN = "trials with a parameter missing from the study"

_NOT_CHECKED = "not checked: parameters, seeds and ids: the workload's declaration of {} has changed since the training"
_OLD_VERSION = "audit it with the version of attnsweep and of the workload in sweep.json"


def compare_trainings(books: Books) -> tuple[Problem, ...]:
    """Recomputes the parameters, seed and id of every training from the study, and finds rows that differ."""
    if not books.rows.num_rows:
        return ()
    parameters = books.workload.parameters
    declared = parameters.declared()
    stored = {name.removeprefix("param_") for name in books.rows.column_names if name.startswith("param_")}
    # Rows of earlier versions may lack a parameter that was added later, and may have a parameter that was retired.
    needed = {name for name, parameter in declared.items() if parameter.since is None}
    if changed := sorted((needed - stored) | (stored - {*declared, *parameters.retired()})):
        return (Problem(_NOT_CHECKED.format(", ".join(changed)), _OLD_VERSION),)
    fixes = {_FOREIGN: COPIED, _SEED: RESTORE, _ID: RESTORE, _ILLEGAL: _OLD_VERSION, _UNDRAWN: "restore the study"}
    faults = Faults(fixes | {_PARAMETER.format(name): f"{RESTORE}, or the study" for name in sorted(declared)})
    tasks, places = _expected(books, faults)
    rows = books.rows.take(pa.array(places, pa.int64()))
    for kind, is_wrong in _compared(books, tasks, rows):
        wrong = [tasks[index] for index in np.flatnonzero(is_wrong)]
        faults.add(kind, *(f"{task.trial}/{task.replicate}" for task in wrong))
    return faults.problems()


def _expected(books: Books, faults: Faults) -> tuple[list[Task], list[int]]:
    """Returns the trainings that the ledger's rows should belong to, and the indices of those rows."""
    tasks: list[Task] = []
    places: list[int] = []
    for trial in books.asked:
        place = books.places.get(trial.number)
        if place is None or undrawn(books.directory.spec, trial.params):
            # Trials without values for some of their parameters are skipped here, because `compare_trials` reports
            # them.
            continue
        try:
            tasks += _tasks(trial, books, books.rows["replicate"].slice(place.start, len(place)).to_pylist())
        except SpecError as error:
            faults.add(_ILLEGAL, f"{trial.number} ({error})")
        except (ValueError, KeyError) as error:
            # Optuna raises a ValueError if the trial lacks a parameter. attnsweep raises a KeyError if the parameter
            # that a conditional parameter depends on is missing.
            faults.add(_UNDRAWN, f"{trial.number} ({error})")
        else:
            places += place
    return tasks, places


def _tasks(trial: FrozenTrial, books: Books, replicates: Sequence[int]) -> list[Task]:
    values = values_of(books.directory.spec, trial.params)
    return tasks_of(books.directory, books.workload.parameters, trial.number, values, replicates)


def _compared(books: Books, tasks: Sequence[Task], rows: pa.Table) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yields each kind of fault with a boolean mask of the rows that have it."""
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
                # Rows of versions that did not have this parameter yet hold null, which stands for the parameter's
                # default.
                values = [
                    None if null and value == declared.default else value
                    for null, value in zip(stored.is_null().to_pylist(), values, strict=True)
                ]
            yield _PARAMETER.format(name), _differ(stored, values)


def _differ(stored: pa.ChunkedArray, expected: list[Any]) -> NDArray[np.bool_]:
    """Marks the rows where a column differs from the expected values; null equals only null."""
    kind = pa.string() if pa.types.is_dictionary(stored.type) else stored.type
    a, b = stored.cast(kind), pa.chunked_array([pa.array(expected, kind)])
    is_other = pc.if_else(pc.and_(a.is_valid(), b.is_valid()), pc.not_equal(a, b), pc.xor(a.is_valid(), b.is_valid()))
    return np.asarray(is_other)
