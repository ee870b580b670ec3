"""Makes a report again while its sweeps go on."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attnsweep.orchestrator.ledger.fragments import names_in_all
from attnsweep.orchestrator.report.page import write_report
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.progress import progress_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_LOOK_SECONDS = 2.0


def watch_report(directories: Sequence[PlaceName], out: Path | None, told: Callable[[Path], None]) -> None:
    """Writes the report, and again whenever a ledger has changed, until no run of these sweeps is under way.

    Args:
        directories: At least one.
        out: As for `write_report`.
        told: Called with the path each time that the file was written.

    Raises:
        UserError: As `write_report`.
    """
    for goes_on in changes(directories, threading.Event()):
        told(write_report(directories, out))
        if not goes_on:
            return


def changes(directories: Sequence[PlaceName], ended: threading.Event) -> Iterator[bool]:
    """Yields at once, and then after each change of a ledger or of what runs: whether a run is under way.

    Changes are looked for every two seconds, or as seldom as what is done about one takes: making a report of a large
    sweep costs at most half of the time.

    Args:
        directories: The sweeps.
        ended: Ends it.
    """
    seen = None
    while not ended.is_set():
        before, pause = time.monotonic(), _LOOK_SECONDS
        # Before what is yielded reads the ledger: a commit in between is seen as a change next time.
        found = [_state(SweepDirectory.open(each)) for each in directories]
        if found != seen:
            seen = found
            yield any(is_running for is_running, _, _ in found)
            pause = max(pause, time.monotonic() - before)
        ended.wait(pause)


def _state(directory: SweepDirectory) -> tuple[bool, bool, list[str]]:
    said = None if directory.finished else progress_of(directory.homes)
    is_running = said is not None and said.is_running(datetime.now(UTC))
    return is_running, directory.finished, names_in_all(directory.place)
