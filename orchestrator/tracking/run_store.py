"""The interfaces between a follower of the ledger and the stores of runs: MLflow, W&B and TensorBoard."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from attnsweep.orchestrator.analysis.results import SweepResults
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.content import TrialContent


class Runs(ABC):
    """Base class of the runs of one sweep in a store: finds out which trials are logged, and logs others.

    Implementers: a run may count as finished only once all of its content is written, whenever the process is killed;
    logging a run again replaces its earlier content.

    Attributes:
        most_trials: The largest sweep whose trials have runs of their own.
    """

    most_trials: float = math.inf

    @abstractmethod
    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """Returns the trials that have a finished run, and the store's identifiers of unfinished runs by trial.

        A run also counts as unfinished if replicates were added to its trial since, or failed trainings were repeated.

        Args:
            retried: By trial of which a failed training was repeated, when its last training ended, in milliseconds
                since the epoch; `None` while a training is missing.
        """

    @abstractmethod
    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        """Writes the runs of trials. Yields the contents of each batch of runs after it was written.

        Args:
            contents: The complete contents of the runs.
            unfinished: The identifiers of the runs to complete, by trial, from `logged`. For other trials runs are
                created.
        """

    def begin(self) -> None:  # noqa: B027  # not every store can record it
        """Marks the sweep as running in the store."""

    def interrupt(self) -> None:  # noqa: B027  # not every store can record it
        """Marks the sweep in the store as not running, until the next `begin` or `finish`."""

    def finish(  # noqa: B027  # not every store can record it
        self, findings: SweepResults, ended: int | None, trials: str | None
    ) -> None:
        """Writes the sweep's summary to the store. Call it when no trial's run is missing.

        Args:
            findings: The results of the current ledger.
            ended: When the last pack was trained, milliseconds since the epoch.
            trials: The table of the sweep's trials as CSV, if the trials have no runs.
        """


class RunStore(Protocol):
    """Base class of a store that runs are logged to: MLflow, Weights & Biases or TensorBoard.

    Attributes:
        label: The store's name for people, without credentials.
        command: The command that logs missing runs, and its options; the sweep's directory follows.
        lock_file: The name of the store's lock file in the sweep directory, different for each store.
    """

    @property
    def label(self) -> str: ...
    @property
    def command(self) -> tuple[str, ...]: ...
    @property
    def lock_file(self) -> str: ...

    def check(self) -> None:
        """Raises an error if the store cannot be used."""

    def runs_of(self, directory: SweepDirectory) -> Runs:
        """Looks up the runs of a sweep in the store."""

    def failures_refused(self) -> AbstractContextManager[None]:
        """A context that turns exceptions of the store's library into a `UserError` of one line."""


def lock_of(command: str, store: str) -> str:
    """Returns the name of the lock file that guards logging a sweep to one store, by the command that logs and the
    store's name."""
    return f".{command.removesuffix('-sync')}-{hashlib.sha256(store.encode()).hexdigest()[:8]}.lock"


def outgrown(directory: SweepDirectory) -> frozenset[int]:
    """Returns the former numbers of replicates: those at which a trial was complete before replicates were added.

    Where a rule decides about replicates, a complete trial stays complete.
    """
    return frozenset(directory.stages[:-1])
