"""The sweeps in a folder or prefix and below it."""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.place import Place
from attnsweep.orchestrator.storage.place_names import place_of
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE
from attnsweep.workloads.errors import UserError


def sweeps_below(place: Place, pass_over: Callable[[OSError], object]) -> Iterator[tuple[Place, int]]:
    """The directories of the sweeps, with the size of all their files in bytes. Reads no file.

    Args:
        place: A sweep directory, or a folder with some below it.
        pass_over: Is told of folders that cannot be read.

    Raises:
        UserError: If there is no such folder.
    """
    sizes = place.sizes(pass_over)
    is_file = isinstance(place, LocalFolder) and place.path.is_file()
    if is_file or (not sizes and place.is_vacant()):
        raise UserError("DIR", given=str(place), expected="a folder that contains sweeps", fix="check the path")
    folders = {PurePosixPath(path).parent for path in sizes if PurePosixPath(path).name == SWEEP_FILE}
    for folder in sorted(folders):
        if not folders.isdisjoint(folder.parents) or _is_in_mlflow(folder):
            continue  # A part of another sweep, or a copy of its record.
        n_bytes = sum(size for path, size in sizes.items() if PurePosixPath(path).is_relative_to(folder))
        yield place if folder == PurePosixPath() else place_of(f"{place}/{folder}"), n_bytes


def _is_in_mlflow(folder: PurePosixPath) -> bool:
    """Whether it is `RUN_ID/artifacts`, where MLflow keeps a sweep's record."""
    return folder.name == "artifacts" and re.fullmatch(r"[0-9a-f]{32}", folder.parent.name) is not None
