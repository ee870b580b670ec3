"""The files that a sweep names by path, such as corpora. The sweep records their sha256; it does not store them."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value


def named_files(pinned: Mapping[str, Value]) -> tuple[str, ...]:
    """The files among what a workload records. They are named by absolute paths."""
    texts = [value for value in pinned.values() if isinstance(value, str)]
    return tuple(text for text in texts if text.startswith("/") and Path(text).is_file())


def sha256_of_files(pinned: Mapping[str, Value]) -> dict[str, str]:
    """The sha256 of each file that a workload records, by its path."""
    found = {}
    for path in named_files(pinned):
        with Path(path).open("rb") as file:
            found[path] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def check_unchanged(directory: SweepDirectory, pinned: Mapping[str, Value]) -> None:
    """Refuses to continue with other files than the sweep began with.

    Raises:
        UserError: If a file is missing or another.
    """
    found = sha256_of_files(pinned)
    for path, sha256 in directory.files.items():
        if found.get(path) != sha256:
            raise UserError(
                str(directory.place),
                given=f"{path}, which has changed" if path in found else f"no file {path}",
                expected=f"the file that the sweep began with, sha256 {sha256[:12]}",
                fix=f"restore it, then: attnsweep resume {as_argument(directory.place)}; or begin another sweep",
            )
