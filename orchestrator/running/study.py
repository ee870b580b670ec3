import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy as copied
from dataclasses import dataclass

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler
from optuna.storages import BaseStorage, InMemoryStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.running.journal import StudyLog, TrialEntries
from attnsweep.orchestrator.running.study_storage import check_database, name_of, open_storage, read_pieces, readable
from attnsweep.orchestrator.running.warm_start import told_trials
from attnsweep.orchestrator.storage.local import LocalFolder, regular_file
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.shards import WHOLE, Shard
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces.dimensions import Scalar
from attnsweep.search_spaces.measured import N_JUDGED
from attnsweep.search_spaces.numbered_draws import draws_of
from attnsweep.search_spaces.optuna_internals import InformedStudy, constraint_attribute
from attnsweep.search_spaces.pruners import make_pruner
from attnsweep.search_spaces.suggestion import Given, draw, group_sizes, make_sampler, suggest, undrawn, values_of
from attnsweep.search_spaces.sweep import LEARN_NOTHING
from attnsweep.workloads.errors import UserError

_REFUSED, _PRUNED = "refused", "pruned_step"


@dataclass(frozen=True)
class Configuration:
    trial: int
    values: Mapping[str, Scalar]


@dataclass(frozen=True)
class Asked:
    trial: int
    is_told: bool


class Study:
    """Draws trials and records their values in an Optuna study. Only the driver does.

    The study of a shard numbers its trials 0, 1, 2, ..., as Optuna requires. Trial numbers in this class are the
    sweep's; `Shard.trial` and `Shard.number` convert between the two.

    Each trial is drawn by a sampler that is seeded by the sweep's seed and the trial's number. A sampler that does not
    learn (`random`, `qmc`, `grid`) therefore draws the same trials in a resumed sweep as in an undisturbed one. So does
    a sampler that learns, because its trials are drawn in groups, each from the results of all earlier groups
    (`n_to_draw`). Trials of earlier sweeps (`--warm-start`) count as ended before the first draw, and are no trials of
    the study.

    All entries are durable once `save` returns. A killed driver loses later entries, but no result: a trial that was
    only asked for has no rows and no checkpoint, and a trial's value is computed again from its rows. With a storage
    URL each entry is durable at once; a kill during `ask` then leaves a half-drawn trial, which `configuration`
    completes.

    Attributes:
        refused, pruned: By trial: why the workload refused its values; the step at which it was pruned.
    """

    def __init__(self, directory: SweepDirectory) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._directory, self._spec, self._shard = directory, directory.spec, directory.of_shard
        self._told_before = told_trials(directory)
        with readable(directory):
            self._backend, self._log = open_storage(directory)
            self._study = optuna.create_study(
                storage=self._backend,
                study_name=directory.sweep,
                directions=[objective.direction for objective in directory.spec.objectives],
                sampler=make_sampler(directory.spec, 0),
                load_if_exists=True,
            )
            self._id = self._backend.get_study_id_from_name(directory.sweep)
        self._name_values()
        # Optuna need not keep new trials in memory if a draw depends only on the number of its trial, and no pruner
        # compares trials.
        is_numbered = not self.learns and directory.spec.pruner is None
        self._entries = TrialEntries(self._log) if is_numbered and self._log is not None else None
        self._draws = None if self.learns else draws_of(directory.spec)
        # The pruner is not given to the Optuna study. With Hyperband, the study would show its sampler only those
        # trials that belong to the same instance of successive halving.
        self._pruner = None if directory.spec.pruner is None else make_pruner(directory.spec.pruner)
        trials = _by_the_sweeps_numbers(self._shard, self._study.get_trials(deepcopy=False))
        self._n_asked = len(trials)
        self.refused: dict[int, str] = {
            trial.number: trial.user_attrs[_REFUSED] for trial in trials if _REFUSED in trial.user_attrs
        }
        self.pruned = {trial.number: step for trial in trials if (step := pruned_at(trial)) is not None}
        for trial in trials:
            # `refuse` changes the study in two steps. If an earlier process was killed between them, the refused trial
            # is still recorded as unfinished, and the second step is taken here.
            if trial.number in self.refused and not trial.state.is_finished():
                self.tell(trial.number, None)
        accepted = (trial for trial in trials if trial.number not in self.refused)
        self._earlier = [Asked(trial.number, trial.state.is_finished()) for trial in accepted]
        self.save()

    @property
    def n_asked(self) -> int:
        return self._n_asked

    @property
    def learns(self) -> bool:
        return self._spec.sampler not in LEARN_NOTHING

    @property
    def n_left(self) -> int:
        return max(self._shard.n_of(self._spec.trials) - self._n_asked, 0)

    def n_to_draw(self, n_trainers: int, still_open: Iterable[int]) -> int:
        """A sampler that learns draws a group once all trials before it have ended, in whatever order they did."""
        if not self.learns:
            return self.n_left
        end, group = group_sizes(self._directory.own_spec, n_trainers, len(self._told_before))
        first = 0
        if self._n_asked >= end:
            first = end + (self._n_asked - end) // group * group
            end = first + group
        return (
            min(end - self._n_asked, self.n_left)
            if all(self._shard.number(trial) >= first for trial in still_open)
            else 0
        )

    def n_ended_at_median(self) -> int | None:
        """How many trials had results when the median trial was drawn; `None` for a sampler that does not learn."""
        trials = self._study.get_trials(deepcopy=False) if self.learns else []
        if not trials:
            return None
        drawn = trials[len(trials) // 2].datetime_start
        assert drawn is not None
        return sum(trial.datetime_complete is not None and trial.datetime_complete <= drawn for trial in trials)

    def ask(self) -> Configuration:
        number = self._shard.trial(self._n_asked)
        if self._entries and self._draws:
            drawn, distributions = self._draws.draw(number)
            self._entries.create(drawn, distributions)
            values = values_of(self._spec, drawn)
        else:
            self._study.sampler = self._sampler(number)
            with self._log.asking() if self._log else nullcontext():
                values = suggest(self._spec, new_trial(self._study, self._backend, self._told_before))
        self._n_asked += 1
        return Configuration(number, values)

    def _sampler(self, trial: int) -> BaseSampler:
        if self._draws is not None:
            return Given(self._draws.draw(trial)[0])
        return make_sampler(self._spec, trial)

    def asked(self) -> list[Asked]:
        """The trials that earlier runs have drawn, except refused ones."""
        return self._earlier

    def check_known(self, trials: Collection[int]) -> None:
        """Raises UserError if the study lacks some of them, because it was lost or replaced."""
        asked = self._shard.first(self._n_asked)
        unknown = [trial for trial in sorted(trials) if trial not in asked]
        if unknown:
            given = f"an Optuna study that lacks {len(unknown)} trials of the ledger, such as trial {unknown[0]}"
            audit = f"to see what is wrong: attnsweep audit {as_argument(self._directory.place)}"
            expected, fix = "a study that contains every trained trial", f"restore the study from a copy; {audit}"
            raise UserError(name_of(self._directory), given=given, expected=expected, fix=fix)

    def configuration(self, trial: int) -> Configuration:
        """Returns a drawn trial. Draws what a killed run had not."""
        frozen = self._backend.get_trial(self._id_in_storage(trial))
        drawn = self._completed(frozen) if undrawn(self._spec, frozen.params) else frozen.params
        return Configuration(trial, values_of(self._spec, drawn))

    def refuse(self, trial: int, reason: str) -> None:
        """Ends a trial as failed, so that the sampler does not learn from it."""
        (self._entries or self._backend).set_trial_user_attr(self._id_in_storage(trial), _REFUSED, reason)
        self.refused[trial] = reason
        self.tell(trial, None)

    def tell(self, trial: int, told: Told | float | None, n_judged: int | None = None) -> None:
        """Ends a trial and records its values.

        Args:
            told: The values of its objectives and constraints, or of its only objective; `None` if all its trainings
                failed.
            n_judged: Number of trainings that the value is computed from; `None` if it is the spec's `replicates`.
        """
        values, excess = told if isinstance(told, Told) else (None if told is None else (told,), {})
        state = TrialState.FAIL if values is None else TrialState.COMPLETE
        storage, trial_id = self._entries or self._backend, self._id_in_storage(trial)
        for name, violation in excess.items():
            storage.set_trial_system_attr(trial_id, constraint_attribute(name), violation)
        if self._spec.sampler == "boundary" and values is not None and n_judged is not None:
            storage.set_trial_user_attr(trial_id, N_JUDGED, n_judged)
        storage.set_trial_state_values(trial_id, state, values)

    def report(self, trial: int, step: int, value: float) -> bool:
        """Records the value of a running trial. Returns `False` if the study had one for this step."""
        trial_id = self._id_in_storage(trial)
        if step in self._backend.get_trial(trial_id).intermediate_values:
            return False
        self._backend.set_trial_intermediate_value(trial_id, step, value)
        return True

    def decide(self, trial: int, step: int) -> None:
        """Asks the pruner, and records the trial as pruned if so."""
        assert self._pruner is not None
        if self._pruner.prune(self._study, self._backend.get_trial(self._id_in_storage(trial))):
            self._backend.set_trial_user_attr(self._id_in_storage(trial), _PRUNED, step)
            self.pruned[trial] = step

    def tell_pruned(self, trial: int) -> None:
        """Ends a trial as pruned. As in Optuna, its final value is the last one that was reported while it ran."""
        trial_id = self._id_in_storage(trial)
        values = [value for _, value in sorted(self._backend.get_trial(trial_id).intermediate_values.items())]
        self._backend.set_trial_state_values(trial_id, TrialState.PRUNED, values[-1:])

    def save(self) -> None:
        """Makes all entries durable; called before checkpoints or rows are written, so that their trials are found."""
        if self._log is not None:
            self._log.save()

    def _name_values(self) -> None:
        """For `optuna-dashboard`."""
        if self._study.metric_names is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                self._study.set_metric_names([objective.label for objective in self._spec.objectives])

    def _completed(self, trial: FrozenTrial) -> dict[str, Scalar]:
        redrawn = self._drawn_again(trial.number)
        drawn: dict[str, Scalar] = trial.params
        while missing := undrawn(self._spec, drawn):
            drawn = drawn | {name: draw(redrawn, name, dimension) for name, dimension in missing.items()}
        added = [] if trial.state.is_finished() else [name for name in drawn if name not in trial.params]
        trial_id = self._id_in_storage(self._shard.trial(trial.number))
        for name in added:
            distribution = redrawn.distributions[name]
            value = distribution.to_internal_repr(drawn[name])
            self._backend.set_trial_param(trial_id, name, value, distribution)
        return drawn

    def _drawn_again(self, number: int) -> optuna.Trial:
        storage_of_copy = InMemoryStorage()
        copy = optuna.create_study(
            storage=storage_of_copy,
            directions=self._study.directions,
            sampler=self._sampler(self._shard.trial(number)),
        )
        copy.add_trials(self._study.get_trials(deepcopy=False)[:number])
        trial = new_trial(copy, storage_of_copy, self._told_before)
        suggest(self._spec, trial)
        return trial

    def _id_in_storage(self, trial: int) -> int:
        number = self._shard.number(trial)
        return number if self._entries else self._backend.get_trial_id_from_study_id_trial_number(self._id, number)


def new_trial(study: optuna.Study, storage: BaseStorage, told_before: Sequence[FrozenTrial] = ()) -> optuna.Trial:
    """Returns a new trial, whose sampler also learns from `told_before`.

    `study.ask` is not used, because it would also look through all trials for one that somebody has enqueued. In a
    sweep nobody enqueues trials.
    """
    # A study object keeps all trials in memory as they were when the last trial was drawn. So each new trial gets a new
    # study object.
    fresh = InformedStudy(study.study_name, storage, study.sampler, told_before)
    return optuna.Trial(fresh, storage.create_new_trial(storage.get_study_id_from_name(study.study_name)))


def read_trials(directory: SweepDirectory) -> list[FrozenTrial]:
    """Reads a study's trials, by number. Writes nothing and does not block a running sweep.

    Raises:
        UserError: If the study is missing or cannot be read.
    """
    with readable(directory):
        if directory.spec.storage:
            check_database(directory.spec.storage)
            storage: BaseStorage = RDBStorage(directory.spec.storage, skip_table_creation=True)
        elif isinstance(folder := directory.place, ObjectPrefix):
            storage = JournalStorage(StudyLog(read_pieces(folder, STUDY_FILE).lines))
        elif isinstance(folder, LocalFolder) and folder.has_text(STUDY_FILE):
            # Our own `JournalFile` is not used, because it would cut off an incomplete last line. The study's file must
            # only be read here.
            storage = JournalStorage(JournalFileBackend(str(regular_file(folder.path / STUDY_FILE))))
        else:
            raise FileNotFoundError(f"the file {STUDY_FILE}, which holds the sweep's Optuna study, does not exist")
        trials = storage.get_all_trials(storage.get_study_id_from_name(directory.sweep), deepcopy=False)
        return _by_the_sweeps_numbers(directory.of_shard, trials)


def _by_the_sweeps_numbers(shard: Shard, trials: list[FrozenTrial]) -> list[FrozenTrial]:
    if shard == WHOLE:
        return trials
    copies = [copied(trial) for trial in trials]
    for trial in copies:
        trial.number = shard.trial(trial.number)
    return copies


def refusal(trial: FrozenTrial) -> str | None:
    """Why the workload refused a trial's values; `None` if it did not."""
    reason: str | None = trial.user_attrs.get(_REFUSED)
    return reason


def pruned_at(trial: FrozenTrial) -> int | None:
    step: int | None = trial.user_attrs.get(_PRUNED)
    return step
