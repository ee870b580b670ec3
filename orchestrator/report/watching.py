"""Rewrites a report whenever its sweeps have new rows."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attnsweep.orchestrator.ledger.fragments import names_in_all
from attnsweep.orchestrator.report.page import write_report
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.run_records import progress_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_LOOK_SECONDS = 2.0


def watch_report(directories: Sequence[PlaceName], out: Path | None, told: Callable[[Path], None]) -> None:
    """Writes the report, and rewrites it whenever a ledger has changed, until no run of these sweeps is in progress.

    Args:
        directories: The sweeps, at least one.
        out: As for `write_report`.
        told: Called with the path each time the file was written.

    Raises:
        UserError: As `write_report`.
    """
    for is_running in changes(directories, threading.Event()):
        told(write_report(directories, out))
        if not is_running:
            return


def changes(directories: Sequence[PlaceName], ended: threading.Event) -> Iterator[bool]:
    """Yields whether a run is in progress: once at the start, and after each change of a ledger or of the runs in
    progress.

    Looks for changes every two seconds, or, if the caller takes longer to handle a change, pauses as long as the caller
    took: making a report of a large sweep takes at most half of the time.

    Args:
        directories: The sweeps.
        ended: Set it to end the iteration.
    """
    seen = None
    while not ended.is_set():
        before, pause = time.monotonic(), _LOOK_SECONDS
        # The state is read before the caller reads the ledger, so a commit between both reads is reported as a change
        # in the next round.
        states = [_state(SweepDirectory.open(name)) for name in directories]
        if states != seen:
            seen = states
            yield any(is_running for is_running, _, _ in states)
            pause = max(pause, time.monotonic() - before)
        ended.wait(pause)


def _state(directory: SweepDirectory) -> tuple[bool, bool, list[str]]:
    progress = None if directory.finished else progress_of(directory.homes)
    is_running = progress is not None and progress.is_running(datetime.now(UTC))
    return is_running, directory.finished, names_in_all(directory.place)
