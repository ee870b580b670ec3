"""The files outside a sweep that it refers to by path, such as corpora. The sweep records only their sha256."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value


def named_files(pinned: Mapping[str, Value]) -> tuple[str, ...]:
    """Returns the absolute paths of existing files among the values that a workload records."""
    texts = [value for value in pinned.values() if isinstance(value, str)]
    return tuple(text for text in texts if text.startswith("/") and Path(text).is_file())


def sha256_of_files(pinned: Mapping[str, Value]) -> dict[str, str]:
    """Returns the sha256 of each file that a workload records, by the file's path."""
    digests = {}
    for path in named_files(pinned):
        with Path(path).open("rb") as file:
            digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def check_unchanged(directory: SweepDirectory, pinned: Mapping[str, Value]) -> None:
    """Raises an error if a file that the sweep refers to has changed since the sweep began.

    Raises:
        UserError: If a file is missing or has changed.
    """
    digests = sha256_of_files(pinned)
    for path, sha256 in directory.files.items():
        if digests.get(path) != sha256:
            raise UserError(
                str(directory.place),
                given=f"the file {path}, which has changed" if path in digests else f"a missing file {path}",
                expected=f"the file that the sweep began with, whose sha256 begins with {sha256[:12]}",
                fix=f"restore the file and run attnsweep resume {as_argument(directory.place)}; or begin another sweep",
            )
