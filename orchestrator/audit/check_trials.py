"""Compares study and ledger: every trial is trained with the parameters drawn for it, and its results are reported."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from attnsweep.orchestrator.audit.problems import Fault, Problem
from attnsweep.orchestrator.ledger.trial import EndedTrainings, Told, complete_among, ended_trainings
from attnsweep.orchestrator.running.study import pruned_at, refusal
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialValues
from attnsweep.orchestrator.training.tasks import Task, tasks_of, training_id
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.suggestion import undrawn, values_of
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.vocabulary import PRUNED

COPIED = "remove the files that were copied into the folders trainings, curves and heads"
RESTORE = "restore the folders trainings, curves and heads from a copy of the directory"
RESUME = "continue with: attnsweep resume DIR"
_RESTORE_EITHER = f"restore the study, or {RESTORE}"
_OLD_VERSION = "audit it with the version of attnsweep and of the workload in sweep.json"

_TOLD = (TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)
_TOO_FEW = Problem("fewer trials than the budget", RESUME)
_NOT_TOLD = Problem("trials asked for and never told", RESUME)
_HALF_DRAWN = Problem("trials left half drawn by a kill", RESUME)
_TRAINED_HALF_DRAWN = Problem(
    "trials trained although half drawn",
    "restore the study, or leave them out: they had defaults for what was not drawn",
)
_UNTRAINED = Problem("trials told without all their trainings", RESUME)
_REFUSED = Problem("trials refused, yet trained", COPIED)
_UNASKED = Problem("trials trained that were never asked for", f"restore the study, or {COPIED}")
_SURPLUS = Problem("trainings beyond those that their trial needs", COPIED)
_TWICE = Problem(
    "trainings recorded more than once", f"set files that repeat others aside with: attnsweep resume DIR; or {COPIED}"
)
_VALUE = Problem("trials whose value in the study is not that of their trainings", _RESTORE_EITHER)
_PRUNED = Problem("trials pruned in the study or in the ledger alone", _RESTORE_EITHER)
_FOREIGN = Problem(
    "trials in a state that attnsweep does not know", "restore the study: another program has written to it"
)

_PRUNED_STEP = Problem("pruned trainings with another step than the study has", RESTORE)
_BEYOND = Problem("pruned trainings with more steps than those at which they were pruned", RESTORE)
_PRUNED_WITHOUT = Problem(
    "trainings with a step at which they were pruned and another outcome, or the outcome without a step", RESTORE
)

_OTHER_SWEEP = Problem("trainings of another sweep", COPIED)
_SEED = Problem("trainings with another seed than the sweep gives them", RESTORE)
_ID = Problem("trainings whose id is not that of their parameters and seed", RESTORE)
_ILLEGAL = Problem("trials whose values the workload now refuses", _OLD_VERSION)
_UNDRAWN = Problem("trials with a parameter missing from the study", "restore the study")


@dataclass(frozen=True, kw_only=True)
class Books:
    """The study and the ledger of one sweep, as read.

    Attributes:
        trials: The study's trials, read before the rows, so every trial that has ended in the study has all its rows.
        known: The numbers of the study's trials, read after the rows, so every row belongs to one of these.
        rows: The rows of `trainings` without the column of errors, sorted by trial and replicate.
        values: The values that MLflow should have for each trial, computed from these rows.
    """

    directory: SweepDirectory
    workload: Workload[Any]
    finished: bool
    trials: Sequence[FrozenTrial]
    known: frozenset[int]
    rows: pa.Table
    values: Mapping[int, TrialValues]

    @cached_property
    def asked(self) -> list[FrozenTrial]:
        """All except those that the workload refuses."""
        return [trial for trial in self.trials if refusal(trial) is None]

    @cached_property
    def places(self) -> Mapping[int, range]:
        """The indices of each trial's rows in `rows`."""
        trials, first = np.unique(self.rows["trial"].to_numpy(), return_index=True)
        edges = itertools.pairwise([*first.tolist(), self.rows.num_rows])
        return {trial: range(*place) for trial, place in zip(trials.tolist(), edges, strict=True)}

    @cached_property
    def by_trial(self) -> Mapping[int, EndedTrainings]:
        """Trials without any are left out."""
        return ended_trainings(self.rows)

    def ended(self, trial: int) -> EndedTrainings:
        return self.by_trial.get(trial, EndedTrainings())

    @cached_property
    def complete(self) -> list[int]:
        return complete_among(self.rows, self.directory.spec.replicates)

    def count_trials(self) -> dict[str, int | None]:
        """Of the trials that were not refused: `asked`, fully `trained`, `told` to the study."""
        asked = {trial.number for trial in self.asked}
        return {
            "asked": len(asked),
            "trained": len(asked.intersection(self.complete)),
            "told": sum(trial.state in _TOLD for trial in self.asked),
        }

    def count_wanted(self) -> int:
        rule = self.directory.spec.replicates
        return sum(n_wanted(rule, self.ended(trial.number).stuck) for trial in self.asked)


def compare_trials(books: Books) -> Iterator[Fault]:
    spec = books.directory.own_spec
    if books.finished and spec.seconds is None and not spec.ends_early and len(books.trials) < spec.trials:
        yield _TOO_FEW, f"{len(books.trials)} of {spec.trials}"
    for trial in books.trials:
        yield from _compare_refused(trial, books) if refusal(trial) is not None else _compare_asked(trial, books)
    for number in sorted(books.places.keys() - books.known):
        yield _UNASKED, f"{number}"
    for row in books.rows.group_by(["trial", "replicate"]).aggregate([([], "count_all")]).to_pylist():
        if row["count_all"] > 1:
            yield _TWICE, f"{row['trial']}/{row['replicate']}"


def _compare_refused(trial: FrozenTrial, books: Books) -> Iterator[Fault]:
    if books.ended(trial.number).by_replicate:
        yield _REFUSED, f"{trial.number}"
    if books.finished and not trial.state.is_finished():
        yield _NOT_TOLD, f"{trial.number} (refused)"


def _compare_asked(trial: FrozenTrial, books: Books) -> Iterator[Fault]:
    number, spec = trial.number, books.directory.spec
    ended = books.ended(number)
    yield from _compare_drawn(trial, books)
    wanted = range(n_wanted(spec.replicates, ended.stuck))
    for replicate in sorted(ended.by_replicate):
        if replicate not in wanted:
            yield _SURPLUS, f"{number}/{replicate}"
    # A trial that has ended may still have untrained replicates: those that were added later, and failed ones that are
    # trained again. They do not count as missing.
    due = wanted if books.finished or not books.directory.more_replicates else range(books.directory.stages[0])
    retried = frozenset().union(*books.directory.retried_of(number)) if not books.finished else frozenset()
    n_missing = sum(replicate not in ended.by_replicate and replicate not in retried for replicate in due)
    if trial.state == TrialState.RUNNING:
        if books.finished:
            yield _NOT_TOLD, f"{number}"
    elif trial.state not in _TOLD or (trial.state == TrialState.PRUNED and spec.pruner is None):
        yield _FOREIGN, f"{number} ({trial.state.name})"
    elif n_missing:
        yield _UNTRAINED, f"{number} ({n_missing} of {len(due)} missing)"
    elif (trial.state == TrialState.PRUNED) != ended.is_pruned:
        yield _PRUNED, f"{number}"
    elif not ended.is_pruned and _told(trial) not in (allowed := _may_be_told(books.directory, number, ended)):
        yield _VALUE, f"{number} ({_in_words(_told(trial))}, not {_in_words(allowed[-1])})"


def _told(trial: FrozenTrial) -> Told | None:
    return None if trial.values is None else Told(tuple(trial.values), trial.constraints)


def _in_words(told: Told | None) -> str:
    if told is None:
        return "None"
    beyond = [f"{name}: {excess:+g}" for name, excess in told.excess.items()]
    return ", ".join([*map(str, told.values), *beyond])


def _may_be_told(directory: SweepDirectory, trial: int, ended: EndedTrainings) -> list[Told | None]:
    results = [*(ended.without(retried) for retried in directory.retried_of(trial)), ended]
    earlier = [trainings.first(n) for trainings in results for n in directory.stages[:-1]]
    return [trainings.told(directory.spec) for trainings in (*earlier, *results)]


def _compare_drawn(trial: FrozenTrial, books: Books) -> Iterator[Fault]:
    missing = undrawn(books.directory.spec, trial.params)
    # While the sweep runs, its last trial may lack parameters, because the sweep is still drawing them.
    is_whole_soon = trial is books.trials[-1] and not books.finished
    if missing and (trial.number in books.places or trial.state in _TOLD):
        yield _TRAINED_HALF_DRAWN, f"{trial.number} ({', '.join(missing)} missing)"
    elif missing and trial.state == TrialState.RUNNING and not is_whole_soon:
        yield _HALF_DRAWN, f"{trial.number} ({', '.join(missing)} missing)"


def compare_pruned(books: Books) -> Iterator[Fault]:
    decided = {trial.number: pruned_at(trial) for trial in books.asked}
    for row in books.rows.filter((pc.field("outcome") == PRUNED) | pc.field("pruned_step").is_valid()).to_pylist():
        name, step = f"{row['trial']}/{row['replicate']}", row["pruned_step"]
        if step is None or row["outcome"] != PRUNED:
            yield _PRUNED_WITHOUT, name
            continue
        earliest = decided.get(row["trial"])
        packs = books.rows["pack"].slice(books.places[row["trial"]].start, len(books.places[row["trial"]])).unique()
        if earliest is None or step < earliest or (step > earliest and len(packs) == 1):
            yield _PRUNED_STEP, f"{name} ({step}, not {earliest})"
        if row["n_steps"] > step:
            yield _BEYOND, f"{name} ({row['n_steps']}, not {step})"


def changed_parameters(books: Books) -> Problem | None:
    """Compares the parameters that the workload declares now with the ledger's columns."""
    parameters = books.workload.parameters
    declared = parameters.declared()
    stored = {name.removeprefix("param_") for name in books.rows.column_names if name.startswith("param_")}
    changed = sorted(stored ^ declared.keys())
    if changed and books.rows.num_rows:
        what = f"the workload's declaration of {', '.join(changed)} has changed since the training"
        return Problem(f"not checked: parameters, seeds and ids: {what}", _OLD_VERSION)
    return None


def compare_trainings(books: Books) -> Iterator[Fault]:
    """Finds rows whose parameters, seed or id do not follow from the study and the sweep's seed."""
    tasks: list[Task] = []
    places: list[int] = []
    for trial in books.asked:
        place = books.places.get(trial.number)
        if place is None or undrawn(books.directory.spec, trial.params):
            # Trials without values for some of their parameters are skipped here, because `compare_trials` reports
            # them.
            continue
        replicates = books.rows["replicate"].slice(place.start, len(place)).to_pylist()
        try:
            values = values_of(books.directory.spec, trial.params)
            tasks += tasks_of(books.directory, books.workload.parameters, trial.number, values, replicates)
        except SpecError as error:
            yield _ILLEGAL, f"{trial.number} ({error})"
        except (ValueError, KeyError) as error:
            # The ValueError and the KeyError both mean that the trial lacks a parameter. The KeyError comes from a
            # conditional parameter that was drawn although the parameter that it depends on was not.
            yield _UNDRAWN, f"{trial.number} ({error})"
        else:
            places += place
    if not tasks:
        return  # a ledger without rows lacks the columns of parameters
    for kind, is_wrong in _compared(books, tasks, books.rows.take(pa.array(places, pa.int64()))):
        for index in np.flatnonzero(is_wrong):
            yield kind, f"{tasks[index].trial}/{tasks[index].replicate}"


def _compared(books: Books, tasks: Sequence[Task], rows: pa.Table) -> Iterator[tuple[Problem, NDArray[np.bool_]]]:
    if not tasks:
        return  # a ledger without rows has no columns of parameters
    trainings = [task.training for task in tasks]
    yield _OTHER_SWEEP, _differ(rows["sweep"], [books.directory.sweep] * len(tasks))
    yield _SEED, _differ(rows["seed"], [training.seed for training in trainings])
    ids = [training_id(books.workload.name, training.parameters, training.seed) for training in trainings]
    yield _ID, _differ(rows["training_id"], ids)
    effective = [training.parameters.effective() for training in trainings]
    for name in books.workload.parameters.declared():
        values = [parameters[name] for parameters in effective]
        what = f"trainings with another value of {name} than the study has"
        yield Problem(what, f"{RESTORE}, or the study"), _differ(rows[f"param_{name}"], values)


def _differ(stored: pa.ChunkedArray, expected: list[Any]) -> NDArray[np.bool_]:
    """Null equals only null."""
    kind = pa.string() if pa.types.is_dictionary(stored.type) else stored.type
    a, b = stored.cast(kind), pa.chunked_array([pa.array(expected, kind)])
    is_other = pc.if_else(pc.and_(a.is_valid(), b.is_valid()), pc.not_equal(a, b), pc.xor(a.is_valid(), b.is_valid()))
    return np.asarray(is_other)
