"""Compares the study's trials with the rows of the ledger: every trial asked for must be trained and reported."""

from optuna.trial import FrozenTrial, TrialState

from attnsweep.orchestrator.audit.evidence import KEYS, Books
from attnsweep.orchestrator.audit.problems import Faults, Problem
from attnsweep.orchestrator.ledger.trial import EndedTrainings, Told, complete_among
from attnsweep.orchestrator.running.study import refusal
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.replication import n_wanted
from attnsweep.search_spaces.suggestion import undrawn

COPIED = "remove the files that were copied into the folders trainings, curves and heads"
RESTORE = "restore the folders trainings, curves and heads from a copy of the directory"
RESUME = "continue with: attnsweep resume DIR"

_TOLD = (TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED)
_TOO_FEW = "fewer trials than the budget"
_NOT_TOLD = "trials asked for and never told"
_HALF_DRAWN = "trials left half drawn by a kill"
_TRAINED_HALF_DRAWN = "trials trained although half drawn"
_UNTRAINED = "trials told without all their trainings"
_REFUSED = "trials refused, yet trained"
_UNASKED = "trials trained that were never asked for"
_SURPLUS = "trainings beyond those that their trial needs"
_TWICE = "trainings recorded more than once"
_VALUE = "trials whose value in the study is not that of their trainings"
_PRUNED = "trials pruned in the study or in the ledger alone"
_FOREIGN = "trials in a state that attnsweep does not know"

_FIXES = {
    _TOO_FEW: RESUME,
    _NOT_TOLD: RESUME,
    _HALF_DRAWN: RESUME,
    _TRAINED_HALF_DRAWN: "restore the study, or leave them out: they had defaults for what was not drawn",
    _UNTRAINED: RESUME,
    _REFUSED: COPIED,
    _UNASKED: f"restore the study, or {COPIED}",
    _SURPLUS: COPIED,
    _TWICE: f"set files that repeat others aside with: attnsweep resume DIR; or {COPIED}",
    _VALUE: f"restore the study, or {RESTORE}",
    _PRUNED: f"restore the study, or {RESTORE}",
    _FOREIGN: "restore the study: another program has written to it",
}


def count_trials(books: Books) -> dict[str, int | None]:
    """Counts the trials that were asked for, fully trained, and told to the study. Trials that the workload refused
    are left out."""
    asked = {trial.number for trial in books.asked}
    return {
        "asked": len(asked),
        "trained": len(asked.intersection(complete(books))),
        "told": sum(trial.state in _TOLD for trial in books.asked),
    }


def count_wanted(books: Books) -> int:
    """Returns how many trainings the sweep's trials need; if a rule decides this, given the rows so far."""
    rule = books.directory.spec.replicates
    return sum(n_wanted(rule, books.ended(trial.number).stuck) for trial in books.asked)


def complete(books: Books) -> list[int]:
    """Returns the trials that have rows of all the trainings that they need."""
    return complete_among(books.rows, books.directory.spec.replicates)


def compare_trials(books: Books) -> tuple[Problem, ...]:
    """Finds differences between the trials of the study and those of the ledger."""
    faults = Faults(_FIXES)
    spec = books.directory.own_spec
    if books.finished and spec.seconds is None and len(books.trials) < spec.trials:
        faults.add(_TOO_FEW, f"{len(books.trials)} of {spec.trials}")
    for trial in books.trials:
        _compare(trial, books, faults)
    faults.add(_UNASKED, *map(str, sorted(books.places.keys() - books.known)))
    counts = books.rows.group_by(list(KEYS)).aggregate([([], "count_all")]).to_pylist()
    faults.add(_TWICE, *(f"{row['trial']}/{row['replicate']}" for row in counts if row["count_all"] > 1))
    return faults.problems()


def _compare(trial: FrozenTrial, books: Books, faults: Faults) -> None:
    number = trial.number
    ended = books.ended(number)
    if refusal(trial) is not None:
        faults.add(_REFUSED, *([f"{number}"] if ended.by_replicate else []))
        faults.add(_NOT_TOLD, *([f"{number} (refused)"] if books.finished and not trial.state.is_finished() else []))
        return
    _compare_drawn(trial, books, faults)
    wanted = range(n_wanted(books.directory.spec.replicates, ended.stuck))
    faults.add(
        _SURPLUS, *(f"{number}/{replicate}" for replicate in sorted(ended.by_replicate) if replicate not in wanted)
    )
    # Replicates that were added later or are being retried may be untrained in an ended trial. Such replicates do not
    # count as missing.
    due = wanted if books.finished or not books.directory.more_replicates else range(books.directory.stages[0])
    retried = frozenset().union(*books.directory.retried_of(number)) if not books.finished else frozenset()
    n_missing = sum(replicate not in ended.by_replicate and replicate not in retried for replicate in due)
    if trial.state == TrialState.RUNNING:
        faults.add(_NOT_TOLD, *([f"{number}"] if books.finished else []))
    elif trial.state not in _TOLD or (trial.state == TrialState.PRUNED and books.directory.spec.pruner is None):
        faults.add(_FOREIGN, f"{number} ({trial.state.name})")
    elif n_missing:
        faults.add(_UNTRAINED, f"{number} ({n_missing} of {len(due)} missing)")
    elif (trial.state == TrialState.PRUNED) != ended.is_pruned:
        faults.add(_PRUNED, f"{number}")
    elif not ended.is_pruned and _told(trial) not in (allowed := _may_be_told(books.directory, number, ended)):
        faults.add(_VALUE, f"{number} ({_in_words(_told(trial))}, not {_in_words(allowed[-1])})")


def _told(trial: FrozenTrial) -> Told | None:
    """Returns the values that the study has for a trial; `None` if it has none."""
    return None if trial.values is None else Told(tuple(trial.values), trial.constraints)


def _in_words(told: Told | None) -> str:
    if told is None:
        return "None"
    beyond = [f"{name}: {excess:+g}" for name, excess in told.excess.items()]
    return ", ".join([*map(str, told.values), *beyond])


def _may_be_told(directory: SweepDirectory, trial: int, ended: EndedTrainings) -> list[Told | None]:
    """Returns all values that the study may rightly have for a trial: computed from all its trainings, or without
    replicates that were added or retried later.

    Such values do not include trainings that had failed by then and were retried since.
    """
    results = [*(ended.without(retried) for retried in directory.retried_of(trial)), ended]
    earlier = [trainings.first(n) for trainings in results for n in directory.stages[:-1]]
    return [trainings.told(directory.spec) for trainings in (*earlier, *results)]


def _compare_drawn(trial: FrozenTrial, books: Books, faults: Faults) -> None:
    """Reports a trial for which some parameters were never drawn, but which was trained or left unfinished."""
    missing = undrawn(books.directory.spec, trial.params)
    if not missing:
        return
    case = f"{trial.number} ({', '.join(missing)} missing)"
    # While the sweep runs, its last trial may lack parameters only because the sweep is still drawing it.
    is_whole_soon = trial is books.trials[-1] and not books.finished
    if trial.number in books.places or trial.state in _TOLD:
        faults.add(_TRAINED_HALF_DRAWN, case)
    elif trial.state == TrialState.RUNNING and not is_whole_soon:
        faults.add(_HALF_DRAWN, case)
