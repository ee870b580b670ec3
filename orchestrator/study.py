"""The configurations of a sweep: Optuna's study, asked and told by the driver alone."""

from collections.abc import Mapping
from dataclasses import dataclass

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from orchestrator.sweep_directory import SweepDirectory
from search_spaces.dimensions import Scalar
from search_spaces.suggestion import distributions, make_sampler, suggest


@dataclass(frozen=True)
class Configuration:
    """One trial: its number and the parameters it sets."""

    trial: int
    values: Mapping[str, Scalar]


class Study:
    """Asks for configurations and tells how they ended.

    Each trial is drawn by a sampler seeded by the sweep's seed and the trial's number, so that a resumed sweep draws
    what an undisturbed one would have drawn.
    """

    def __init__(self, directory: SweepDirectory) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._spec = directory.spec
        self._distributions = distributions(directory.spec)
        self._study = optuna.create_study(
            storage=directory.spec.storage or JournalStorage(JournalFileBackend(str(directory.study_path))),
            study_name=directory.sweep,
            direction=directory.spec.objective.direction,
            sampler=make_sampler(directory.spec, 0),
            load_if_exists=True,
        )
        trials = self._study.get_trials(deepcopy=False)
        self._n_asked = len(trials)
        self._unfinished = [trial for trial in trials if trial.state == TrialState.RUNNING]

    @property
    def n_asked(self) -> int:
        """Trials asked for so far, told or not."""
        return self._n_asked

    @property
    def n_left(self) -> int:
        """Trials that the budget still has."""
        return max(self._spec.trials - self._n_asked, 0)

    def ask(self) -> Configuration:
        """The next configuration."""
        self._study.sampler = make_sampler(self._spec, self._n_asked)
        trial = self._study.ask(self._distributions)
        self._n_asked += 1
        return Configuration(trial.number, suggest(self._spec, trial))

    def unfinished(self) -> list[Configuration]:
        """Configurations that an earlier run asked for and never told, as they were drawn then."""
        return [
            Configuration(frozen.number, suggest(self._spec, optuna.Trial(self._study, frozen._trial_id)))
            for frozen in self._unfinished
        ]

    def tell(self, trial: int, value: float | None) -> None:
        """Ends a trial; `None` says that all its trainings failed."""
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self._study.tell(trial, value, state=state)
