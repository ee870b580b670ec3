"""What a sweep directory no longer needs: found, and removed. Neither resume, nor replay, nor audit reads any of it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath

from attnsweep.orchestrator.ledger.fragments import TABLES, counting_names, fragment_names, open_files
from attnsweep.orchestrator.storage.location import Location, locate
from attnsweep.orchestrator.storage.place import ASIDE, CHECKPOINTS, Place
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

_OWN_FOLDERS = {"", *TABLES, CHECKPOINTS, "bases", "code", "report", "report/report_figures", "weights"}
"""Where attnsweep writes. Anything below another folder is the user's."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """One file that can go.

    Attributes:
        file: Its path in the sweep directory.
        n_bytes: Its size.
        kind: What it is.
    """

    file: str
    n_bytes: int
    kind: str


def collect(where: Location, *, delete: bool) -> list[Garbage]:
    """Finds what can go, and removes it if asked to. It holds the sweep's lock, so nothing is being written meanwhile.

    Curves are never thinned: `replay` compares every point of them.

    Args:
        where: The sweep directory.
        delete: Whether to remove it.

    Raises:
        UserError: If there is no sweep, it is running, or its ledger cannot be read.
    """
    place = locate(where)
    directory = SweepDirectory.open(place)
    with closing(place.lock("gc")):
        found = sorted(_garbage(place, finished=directory.finished), key=lambda each: each.file)
        if delete:
            _remove(place, found)
    return found


def _garbage(place: Place, *, finished: bool) -> Iterator[Garbage]:
    counting = set(counting_names(open_files(place, "trainings", fragment_names(place))))
    for file, n_bytes in place.sizes().items():
        kind = _kind(PurePosixPath(file), counting, finished=finished)
        if kind is not None:
            yield Garbage(file, n_bytes, kind)


def _kind(file: PurePosixPath, counting: set[str], *, finished: bool) -> str | None:
    """What can go about a file; `None` if it stays."""
    folder = "" if str(file.parent) == "." else str(file.parent)
    if folder.partition("/")[0] == ASIDE and file.suffix == ".parquet":
        return "damaged and set aside"
    if folder not in _OWN_FOLDERS:
        return None
    if file.name.startswith(".") and (file.suffix in (".tmp", ".new") or file.name.startswith(".clock-")):
        return "left over by a write that was cut short"
    if folder == CHECKPOINTS and file.suffix == ".parquet" and finished:
        return "checkpoints of a finished sweep"
    if folder in TABLES and file.suffix == ".parquet" and file.stem not in counting:
        return "left over by a commit or a merge that was cut short"
    return None


def _remove(place: Place, found: Sequence[Garbage]) -> None:
    by_folder = defaultdict(list)
    for each in found:
        folder, _, name = each.file.rpartition("/")
        by_folder[folder].append(name)
    for folder, names in by_folder.items():
        place.remove(folder, names)
