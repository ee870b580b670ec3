"""What a follower of the ledger needs of the places that runs go to: MLflow, W&B and TensorBoard."""

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
    """The runs of one sweep in a store.

    Implementers: a run counts as finished only if all of it is there, whenever the process was killed; what is logged
    again replaces what was there.

    Attributes:
        most_trials: A sweep of more trials has no runs of them.
    """

    most_trials: float = math.inf

    @abstractmethod
    def logged(self, retried: Mapping[int, int | None]) -> tuple[set[int], dict[int, str]]:
        """The trials that have a finished run; and what names the unfinished runs, by trial.

        A run is unfinished too if replicates were added to its trial since, or failed ones trained again.

        Args:
            retried: By trial of which a failed training was trained again, when its last training ended, milliseconds
                since the epoch; `None` while one is missing.
        """

    @abstractmethod
    def log(self, contents: Sequence[TrialContent], unfinished: Mapping[int, str]) -> Iterator[Sequence[TrialContent]]:
        """Writes runs, and yields the contents of those that were written at once.

        Args:
            contents: The complete contents of the runs.
            unfinished: What names the runs to complete, by trial. The other runs are made.
        """

    def begin(self) -> None:  # noqa: B027  # not every store has a place for it
        """Marks the sweep as running."""

    def interrupt(self) -> None:  # noqa: B027  # not every store has a place for it
        """Marks the sweep as no longer running, until `finish` or `begin`."""

    def finish(  # noqa: B027  # not every store has a place for it
        self, findings: SweepResults, ended: int | None, trials: str | None
    ) -> None:
        """Writes the sweep's summary. Called when no run is missing.

        Args:
            findings: The results of the current ledger.
            ended: When the last pack was trained, milliseconds since the epoch.
            trials: The table of its trials as CSV, if they have no runs.
        """


class RunStore(Protocol):
    """A place that runs go to.

    Attributes:
        label: Its name, for people, without credentials.
        command: The command that logs what is missing, and its options; the directory follows.
        lock_file: The name of the lock in the sweep directory: one for each store.
    """

    @property
    def label(self) -> str: ...
    @property
    def command(self) -> tuple[str, ...]: ...
    @property
    def lock_file(self) -> str: ...

    def check(self) -> None:
        """Raises if it is none."""

    def runs_of(self, directory: SweepDirectory) -> Runs:
        """The runs of a sweep, looked up."""

    def failures_refused(self) -> AbstractContextManager[None]:
        """Turns what the store's library raises into an error of one line."""


def lock_of(command: str, store: str) -> str:
    """The name of a lock in the sweep directory: one for each store of a kind, named by the kind's command."""
    return f".{command.removesuffix('-sync')}-{hashlib.sha256(store.encode()).hexdigest()[:8]}.lock"


def outgrown(directory: SweepDirectory) -> frozenset[int]:
    """The numbers of trainings with which a trial was complete before replicates were added.

    Where a rule decides about replicates, a complete trial stays as it is.
    """
    return frozenset(directory.stages[:-1])
