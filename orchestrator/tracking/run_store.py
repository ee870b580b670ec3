"""The interface of a store of runs: MLflow, W&B and TensorBoard implement it, and the code that logs a ledger uses
it."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent


class Found(NamedTuple):
    """A run of one trial that a store, such as MLflow, already has.

    Attributes:
        trial: The trial.
        run: The store's identifier of the run.
        is_finished: Whether all content of the run is written.
        n_trainings: The number of trainings that the run covers.
        ended: When the last of these trainings ended, milliseconds since the epoch.
    """

    trial: int
    run: str
    is_finished: bool
    n_trainings: float | None
    ended: int | None


class Runs(ABC):
    """Base class of the runs of one sweep in a store such as MLflow: finds out which trials are logged, and logs
    others.

    Implementers: a run may count as finished only once all of its content is written, whenever the process is killed;
    logging a run again replaces its earlier content.

    Attributes:
        most_trials: The largest sweep whose trials have runs of their own.
        resolution: The milliseconds to which the store keeps the time when a run ended.
    """

    most_trials: float = math.inf
    resolution = 1

    def __init__(self, directory: SweepDirectory) -> None:
        self._directory = directory

    @abstractmethod
    def _found(self) -> Iterable[Found]:
        """Looks up all runs that the store, such as MLflow, already has of the sweep's trials; a trial may have
        several."""

    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """Returns the trials that have a finished run in the store. Also returns the store's ids of the unfinished
        runs, by trial.

        A run also counts as unfinished if replicates were added to its trial since, or failed trainings were repeated.

        Args:
            retried: For each trial of which a failed training was repeated: when its last training ended, in
                milliseconds since the epoch; `None` while a training is missing.
        """
        # Replicates may have been added to all trials since a run was logged. Such a run has as many trainings as each
        # trial had before: one of the numbers in `n_before`. It counts as unfinished. If a rule chooses the number of
        # replicates for each trial, `n_before` is empty, because a complete trial then stays complete.
        n_before = frozenset(self._directory.stages[:-1])
        finished, unfinished = set(), {}
        for trial, run, is_finished, n_trainings, ended in self._found():
            is_retried = trial in retried and ended != (retried[trial] or 0) // self.resolution * self.resolution
            if is_finished and n_trainings not in n_before and not is_retried:
                finished.add(trial)
            else:
                unfinished[trial] = run
        return finished, {trial: run for trial, run in unfinished.items() if trial not in finished}

    @abstractmethod
    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        """Writes a run for each of several trials to the store, in batches. After each batch of runs, yields the
        contents of the runs that were written.

        Args:
            contents: The complete contents of the runs.
            unfinished: The identifiers of the runs to complete, by trial, from `logged`. For other trials runs are
                created.
        """

    def begin(self) -> None:  # noqa: B027  # not every store can record it
        """Marks the sweep as running in the store."""

    def interrupt(self) -> None:  # noqa: B027  # not every store can record it
        """Marks the sweep as interrupted in the store of runs, such as MLflow, until `begin` or `finish` is called."""

    def finish(  # noqa: B027  # not every store can record it
        self, findings: SweepResults, ended: int | None, trials: str | None
    ) -> None:
        """Writes the sweep's summary to the store, such as MLflow. Call it last, after the complete trials are logged.

        Args:
            findings: The results of the current ledger.
            ended: When the last pack was trained, milliseconds since the epoch.
            trials: The table of the sweep's trials as CSV, if the trials have no runs.
        """


class RunStore(ABC):
    """Base class of a store that runs are logged to: MLflow, Weights & Biases or TensorBoard.

    Attributes:
        label: The store's name for people, without credentials.
        command: The command that logs missing runs, and its options; the sweep's directory follows.
        address: What tells the store from others that the same command logs to: a URI or a folder.
    """

    @property
    @abstractmethod
    def label(self) -> str: ...
    @property
    @abstractmethod
    def command(self) -> tuple[str, ...]: ...
    @property
    @abstractmethod
    def address(self) -> str: ...

    @property
    def lock_file(self) -> str:
        """The name of the file in the sweep directory by which a process locks logging to this store; different for
        each store."""
        digest = hashlib.sha256(self.address.encode()).hexdigest()[:8]
        return f".{self.command[0].removesuffix('-sync')}-{digest}.lock"

    @abstractmethod
    def check(self) -> None:
        """Raises an error if the store cannot be used."""

    @abstractmethod
    def runs_of(self, directory: SweepDirectory) -> Runs:
        """Looks up the runs that the store has of a sweep."""

    @contextmanager
    def failures_refused(self) -> Iterator[None]:
        """A context that turns exceptions of the store's library into a `UserError` of one line."""
        yield
