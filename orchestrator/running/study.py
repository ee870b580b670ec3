"""The study: draws trials and is told their values. With a sampler that learns, a pruner or a named database it is
Optuna's, in that database or a journal file."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import optuna
import pyarrow.compute as pc
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.running.warm_start import drawn_in, told_trials
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.files import naming, refuse_link, regular_file, upload
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.optuna_internals import constraint_attribute
from attnsweep.search_spaces.pruners import make_pruner
from attnsweep.search_spaces.suggestion import (
    Given,
    distributions_of,
    group_sizes,
    make_sampler,
    suggest,
    undrawn,
    values_of,
)
from attnsweep.search_spaces.sweep import LEARN_NOTHING, Sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.parameters import TrainingParameters

PRUNED_STEP = "pruned_step"
"""The attribute of a trial with the step at which the pruner ended it."""


class Study:
    """Draws trials. Here each is a function of the sweep's seed and the trial's number, and nothing is stored.

    Attributes:
        n_asked: Of this shard's trials.
        refused: Why the workload refused a trial's values, by trial.
        pruned: The step at which a trial was pruned, by trial.
    """

    learns = False

    def __init__(self, directory: SweepDirectory) -> None:
        self._directory, self._spec, self._shard = directory, directory.spec, directory.shard
        self._draws = None if self._spec.sampler not in LEARN_NOTHING else draws_of(self._spec)
        self.n_asked = 0
        self.refused: dict[int, str] = {}
        self.pruned: dict[int, int] = {}

    @property
    def n_left(self) -> int:
        return max(self._shard.n_of(self._spec.trials) - self.n_asked, 0)

    def n_to_draw(self, n_trainers: int, still_open: Iterable[int]) -> int:
        del n_trainers, still_open
        return self.n_left

    def restored(self, known: Collection[int], parameters: type[TrainingParameters]) -> Iterator[int]:
        """The trials that earlier runs have drawn. `known` are those with rows, checkpoints or retried trainings."""
        del parameters
        self.n_asked = max(map(self._shard.number, known), default=-1) + 1
        yield from self._shard.first(self.n_asked)

    def ask(self) -> int:
        self.n_asked += 1
        return self._shard.trial(self.n_asked - 1)

    def values(self, trial: int) -> Mapping[str, Scalar]:
        assert self._draws is not None
        return values_of(self._spec, self._draws.draw(trial)[0])

    def is_told(self, trial: int) -> bool:
        """Whether nothing is left to tell of a trial: it was told, or nothing is stored."""
        del trial
        return True

    def refuse(self, trial: int, reason: str) -> None:
        """Ends a trial as failed, so that the sampler does not learn from it."""
        self.refused[trial] = reason
        if not self.is_told(trial):
            self.tell(trial, None)

    def tell(self, trial: int, told: Told | None, n_judged: int = 1) -> None:
        """Ends a trial; `told` is `None` if all its trainings failed, or it was refused."""

    def tell_pruned(self, trial: int) -> None:
        """Ends a trial as pruned. As in Optuna, its final value is the last one that was reported while it ran."""

    def report(self, trial: int, step: int, value: float, *, may_prune: bool) -> None:
        """Records the value of a running trial, and whether the pruner ends it. A step is decided once."""

    def save(self) -> None:
        """Makes all entries durable."""


class OptunaStudy(Study):
    """Draws trials with an Optuna sampler in memory, and keeps each as one entry of an Optuna storage.

    Trials are drawn in groups, each from the results of all earlier groups, and each trial by a new sampler, seeded by
    the sweep's seed and the trial's number. So a sweep resumed with as many trainers draws as if undisturbed. What the
    storage lacks is taken from the ledger. Trials of earlier sweeps (`--warm-start`) come first and are not stored.
    """

    def __init__(self, directory: SweepDirectory) -> None:
        super().__init__(directory)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.learns = self._draws is None
        self._memory = InMemoryStorage()
        directions = [objective.direction for objective in self._spec.objectives]
        # Hyperband's brackets depend on the study's name.
        self._study = optuna.create_study(storage=self._memory, study_name=directory.sweep, directions=directions)
        # With Hyperband as its pruner, the study would show its sampler only the trials of one bracket.
        self._pruner = None if self._spec.pruner is None else make_pruner(self._spec.pruner)
        earlier = told_trials(directory)
        self._study.add_trials(earlier)
        self._n_earlier = len(earlier)
        with _readable(directory):
            self._storage, self._journal = _open_storage(directory)
            stored = optuna.create_study(
                storage=self._storage, study_name=directory.sweep, directions=directions, load_if_exists=True
            )
            self._id = self._storage.get_study_id_from_name(directory.sweep)
            for trial in stored.get_trials(deepcopy=False):
                self._remember(trial)

    def n_to_draw(self, n_trainers: int, still_open: Iterable[int]) -> int:
        """A sampler that learns draws a group only after all trials before it have ended."""
        if not self.learns:
            return self.n_left
        end, group = group_sizes(self._directory.own_spec, n_trainers, self._n_earlier)
        first = 0
        if self.n_asked >= end:
            first = end + (self.n_asked - end) // group * group
            end = first + group
        has_ended = all(self._shard.number(trial) >= first for trial in still_open)
        return min(end - self.n_asked, self.n_left) if has_ended else 0

    def restored(self, known: Collection[int], parameters: type[TrainingParameters]) -> Iterator[int]:
        stored = self._shard.first(self.n_asked)
        missing = self._missing([trial for trial in known if trial not in stored], parameters)
        n_known = max(map(self._shard.number, known), default=-1) + 1
        for trial in self._shard.first(max(self.n_asked, n_known)):
            if trial in missing:
                self._remember(missing[trial])
                self._store(self._shard.number(trial))
            elif trial not in stored:
                self.ask()
            yield trial

    def ask(self) -> int:
        trial = self._shard.trial(self.n_asked)
        self._study.sampler = Given(self._draws.draw(trial)[0]) if self._draws else make_sampler(self._spec, trial)
        suggest(self._spec, self._study.ask())
        # `Study.ask` on the storage would write an entry for each parameter, and a kill leave a half-drawn trial.
        self._store(self.n_asked)
        self.n_asked += 1
        return trial

    def values(self, trial: int) -> Mapping[str, Scalar]:
        return values_of(self._spec, self._trial(trial).params)

    def is_told(self, trial: int) -> bool:
        return self._shard.number(trial) < self.n_asked and self._trial(trial).state.is_finished()

    def tell(self, trial: int, told: Told | None, n_judged: int = 1) -> None:
        values, excess = told or (None, {})
        for storage, trial_id in self._both(trial):
            for name, violation in excess.items():
                storage.set_trial_system_attr(trial_id, constraint_attribute(name), violation)
            if self._spec.sampler == "boundary" and values is not None:
                storage.set_trial_user_attr(trial_id, N_JUDGED, n_judged)
            storage.set_trial_state_values(trial_id, TrialState.FAIL if values is None else TrialState.COMPLETE, values)

    def tell_pruned(self, trial: int) -> None:
        values = [value for _, value in sorted(self._trial(trial).intermediate_values.items())]
        for storage, trial_id in self._both(trial):
            storage.set_trial_state_values(trial_id, TrialState.PRUNED, values[-1:] or None)

    def report(self, trial: int, step: int, value: float, *, may_prune: bool) -> None:
        if step in self._trial(trial).intermediate_values:
            return
        (_, number), (storage, trial_id) = self._both(trial)
        self._memory.set_trial_intermediate_value(number, step, value)
        before = self._trial(trial)
        # The decision is stored first, the value last. After a kill between them the step is reported again: a decision
        # stands, and the pruner repeats its notes.
        is_asked = may_prune or trial in self.pruned
        is_pruned = self._pruner is not None and is_asked and self._pruner.prune(self._study, before)
        if is_pruned and trial not in self.pruned:
            self.pruned[trial] = step
            for each, its_id in self._both(trial):
                each.set_trial_user_attr(its_id, PRUNED_STEP, step)
        for name in self._trial(trial).system_attrs.keys() - before.system_attrs.keys():
            storage.set_trial_system_attr(trial_id, name, self._trial(trial).system_attrs[name])
        storage.set_trial_intermediate_value(trial_id, step, value)

    def save(self) -> None:
        if self._journal is not None:
            self._journal.save()

    def _trial(self, trial: int) -> FrozenTrial:
        return self._memory.get_trial(self._n_earlier + self._shard.number(trial))

    def _both(self, trial: int) -> list[tuple[BaseStorage, int]]:
        """Memory and storage, each with its id of a trial."""
        number = self._shard.number(trial)
        stored = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        return [(self._memory, self._n_earlier + number), (self._storage, stored)]

    def _remember(self, trial: FrozenTrial) -> None:
        if undrawn(self._spec, trial.params):
            raise _meddled(self._directory)
        self._memory.create_new_trial(0, trial)
        if (step := trial.user_attrs.get(PRUNED_STEP)) is not None:
            self.pruned[self._shard.trial(self.n_asked)] = step
        self.n_asked += 1

    def _store(self, number: int) -> None:
        stored = self._storage.create_new_trial(self._id, self._memory.get_trial(self._n_earlier + number))
        if self._storage.get_trial_number_from_id(stored) != number:
            raise _meddled(self._directory)

    def _missing(self, trials: Collection[int], parameters: type[TrainingParameters]) -> dict[int, FrozenTrial]:
        """Made from their rows in the ledger, as they were while they ran; they are told anew."""
        found: dict[int, FrozenTrial] = {}
        is_missing = pc.field("trial").isin(sorted(trials))
        rows = Ledger(self._directory.place).trainings(filter=is_missing).to_pylist() if trials else []
        for row in rows:
            drawn = drawn_in(self._spec, parameters.recorded(row).values())
            known, pruned = distributions_of(self._spec, drawn), row.get("pruned_step")
            attributes = {} if pruned is None else {PRUNED_STEP: pruned}
            found[row["trial"]] = create_trial(
                state=TrialState.RUNNING, params=drawn, distributions=known, user_attrs=attributes
            )
        return found


def open_study(directory: SweepDirectory) -> Study:
    return OptunaStudy(directory) if has_study(directory.spec) else Study(directory)


def has_study(spec: Sweep) -> bool:
    """Whether a sweep needs or names an Optuna study; without one, a trial is a function of its number."""
    return spec.sampler not in LEARN_NOTHING or spec.pruner is not None or spec.storage is not None


def _meddled(directory: SweepDirectory) -> UserError:
    return _unusable(directory, "a study to which another program has added a trial", StoreError)


class Journal(JournalFileBackend):
    """Optuna's journal file, for the holder of the sweep's lock. Entries wait in memory for the next new trial or
    `save`, which also uploads the file."""

    def __init__(self, place: Path) -> None:
        self._path = refuse_link(place.absolute() / STUDY_FILE)
        self._waiting: list[dict[str, Any]] = []
        with naming(self._path):
            _mend(self._path)
            super().__init__(str(self._path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self._waiting += logs
        if any("trial_id" not in log for log in logs):  # a new study or trial, which Optuna reads back
            self._write()

    def save(self) -> None:
        self._write()
        upload(self._path)

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []  # after a write that failed, nothing is repeated
        if waiting:
            with naming(self._path):
                super().append_logs(waiting)


def _mend(path: Path) -> None:
    """Removes what a killed process leaves: Optuna's lock, for which the next one would wait 30 s, and an incomplete
    last line, to which Optuna would append the next one."""
    for lock in path.parent.glob(f"{path.name}.lock*"):
        lock.unlink()
    content = regular_file(path).read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


def _open_storage(directory: SweepDirectory) -> tuple[BaseStorage, Journal | None]:
    """Of a sweep that names a database: this, without a journal."""
    if directory.spec.storage:
        _check_database(directory.spec.storage)
        return get_storage(directory.spec.storage), None
    journal = Journal(directory.place)
    return JournalStorage(journal), journal


def read_trials(directory: SweepDirectory) -> list[FrozenTrial]:
    """With the sweep's numbers. Writes nothing; raises UserError if the study cannot be read."""
    with _readable(directory):
        if directory.spec.storage:
            _check_database(directory.spec.storage)
            storage: BaseStorage = RDBStorage(directory.spec.storage, skip_table_creation=True)
        elif (directory.place / STUDY_FILE).exists():
            storage = JournalStorage(JournalFileBackend(str(regular_file(directory.place.absolute() / STUDY_FILE))))
        else:
            raise FileNotFoundError("the file does not exist")
        trials = storage.get_all_trials(storage.get_study_id_from_name(directory.sweep), deepcopy=False)
    trials = [copy(trial) for trial in trials]
    for trial in trials:
        trial.number = directory.shard.trial(trial.number)
    return trials


@contextmanager
def _readable(directory: SweepDirectory) -> Iterator[None]:
    """Any error of Optuna or its database becomes a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # each storage library raises its own kinds
        raise _unusable(directory, f"an Optuna study that cannot be read: {_in_words(error)}") from error


def _unusable(directory: SweepDirectory, given: str, kind: type[UserError] = UserError) -> UserError:
    subject, fix = f"{directory.place}/{STUDY_FILE}", "without the file, `resume` writes it again from the ledger"
    if directory.spec.storage:
        subject, fix = "the study", "check the study's database, or restore it from a copy"
    return kind(subject, given=given, expected="the study as attnsweep wrote it", fix=fix)


def check_storage(spec: Sweep) -> None:
    """Opens the database that the sweep names, if any, before anything is written; raises SpecError."""
    if spec.storage is None:
        return
    try:
        database = _file_of(spec.storage)
        if database is None or database.is_absolute():
            get_storage(spec.storage)
            return
        fix = f"set storage=sqlite:///{database.absolute()}"
    except Exception as error:  # noqa: BLE001  # each storage library raises its own kinds
        fix = f"check the URL, or leave out the field storage; the error is {_in_words(error)}"
    # The sweep may be continued from another folder.
    expected = "the URL of an Optuna storage that can be opened, for SQLite with an absolute path"
    raise SpecError("storage", given=without_credentials(spec.storage), expected=expected, fix=fix)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: " + without_credentials(str(error)).partition("\n")[0]


def _check_database(storage: str) -> None:
    """Opening an SQLite database that does not exist would create it."""
    if (database := _file_of(storage)) is not None and not database.exists():
        raise FileNotFoundError(f"the database {database.absolute()} of the sweep's field `storage` does not exist")


def _file_of(storage: str) -> Path | None:
    """`None` for anything but SQLite."""
    from sqlalchemy import make_url  # its import takes 0.15 s

    url = make_url(storage)
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None
