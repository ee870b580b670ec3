"""Finds and removes files that a sweep directory no longer needs: no command that continues, replays or audits the
sweep reads them.

On request it also thins curves (keeps only every second or so of their measured points), which removes results.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath

from attnsweep.orchestrator.ledger.compaction import merge, merge_alike
from attnsweep.orchestrator.ledger.fragments import TABLES, counting_names, fragment_names, open_files, open_snapshot
from attnsweep.orchestrator.ledger.schema import n_staying
from attnsweep.orchestrator.storage.place import ASIDE, CHECKPOINTS, Place
from attnsweep.orchestrator.storage.place_names import PlaceName, as_argument, place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError

_THIN = "--thin-curves"
_OWN_FOLDERS = {"", *TABLES, CHECKPOINTS, "bases", "code", "report", "report/report_figures", "weights"}
"""Folders that attnsweep writes to. Files in any other folder are the user's."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A file in a sweep directory that can be removed, or a file of curves that can lose some of its measured points.

    Attributes:
        file: The file's path in the sweep directory.
        n_bytes: The file's size; for curves that can be thinned, an estimate of the bytes that thinning frees.
        kind: Why the file is not needed, in words.
    """

    file: str
    n_bytes: int
    kind: str


def collect(where: PlaceName, *, delete: bool, thin: int | None = None) -> list[Garbage]:
    """Finds files in a sweep directory that are no longer needed. Removes them if asked to, under the sweep's lock.

    Args:
        where: The sweep directory.
        delete: Whether to remove the files.
        thin: Keeps only every `thin`-th probe of the curves of a finished sweep, besides the first and the last;
            `replay` then compares only the kept probes. The freed bytes are estimated from the number of rows. `None`
            keeps all probes.

    Raises:
        UserError: If there is no sweep, it is running, its ledger cannot be read, or `thin` does not fit its curves.
    """
    place = place_of(where)
    directory = SweepDirectory.open(place)
    with closing(place.lock("gc")):
        counting = set(counting_names(open_files(place, "trainings", fragment_names(place))))
        garbage = [
            Garbage(file, n_bytes, kind)
            for file, n_bytes in sorted(place.sizes().items())
            if (kind := _kind(PurePosixPath(file), counting, finished=directory.finished)) is not None
        ]
        probes = [] if thin is None else list(_probes(directory, thin))
        if delete:
            by_folder = defaultdict(list)
            for piece in garbage:
                folder, _, name = piece.file.rpartition("/")
                by_folder[folder].append(name)
            for folder, names in by_folder.items():
                place.remove(folder, names)
            if thin is not None and probes:
                thin_curves(place, thin)
    return garbage + probes


def thin_curves(place: Place, every: int) -> None:
    """Rewrites the ledger with fewer points of each curve. With `every` = 10, each tenth measured point stays, besides
    the first and the last.

    As in a merge, the new files are published before the old ones are removed: a crash loses nothing, and another call
    continues. Only the holder of the sweep's lock may call it.

    Args:
        place: The sweep directory.
        every: A multiple of the distance between the probes that the curves hold now.
    """
    for kept_every, names in open_snapshot(place).by_thinning().items():
        if kept_every < every:
            merge(place, names, every // kept_every)
    merge_alike(place)


def _probes(directory: SweepDirectory, every: int) -> Iterator[Garbage]:
    """Yields the files of the table `curves` that become smaller if only one measured point in `every` is kept.

    Raises:
        UserError: If the sweep is not finished, or if earlier thinning has removed some of these probes.
    """
    place = directory.place
    if not directory.finished:
        fix = f"finish it with: attnsweep resume {as_argument(place)}"
        raise UserError(_THIN, given=f"the unfinished sweep {place}", expected="a finished sweep", fix=fix)
    snapshot, sizes = open_snapshot(place), place.sizes()
    for kept_every, names in snapshot.by_thinning().items():
        if every % kept_every and kept_every < every:
            expected = f"a multiple of {kept_every}, because only one probe in {kept_every} is left"
            fix = f"give a multiple, such as {kept_every * (every // kept_every)}"
            raise UserError(_THIN, given=every, expected=expected, fix=fix)
        for name in names if kept_every < every else ():
            curves = snapshot.only([name]).dataset("curves").to_table(columns=["trial", "replicate", "metric"])
            lengths = curves.group_by(["trial", "replicate", "metric"]).aggregate([([], "count_all")])["count_all"]
            share = 1 - n_staying(lengths.to_numpy(), every // kept_every) / max(curves.num_rows, 1)
            file = f"curves/{name}.parquet"
            if share > 0:
                yield Garbage(file, round(share * sizes[file]), f"curves but one probe in {every} (estimate)")


def _kind(file: PurePosixPath, counting: set[str], *, finished: bool) -> str | None:
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
