"""The files that trainings need: the user's code and weights, which the sweep stores, and others, such as corpora. The
sha256 of each is checked."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsweep.orchestrator.storage.copies import full_name, name_of
from attnsweep.orchestrator.storage.files import read_text
from attnsweep.orchestrator.storage.place_names import as_argument
from attnsweep.orchestrator.storage.record import reason_of
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory, code_file
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.parameters import Value
from attnsweep.workloads.user_code import UserCode, read_user_code, sha256_of, stored_text, user_file

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload


def load_workload_of(directory: SweepDirectory) -> "Workload[Any]":
    """From stored code or an installed package. Raises UserError if that is gone, or a stored file has changed."""
    from attnsweep.workloads.registry import load_workload

    return load_workload(directory.spec.workload, code_of(directory))


def code_of(directory: SweepDirectory) -> UserCode | None:
    """`None` for an installed package. Raises UserError if a file is missing or has changed."""
    file = user_file(directory.spec.workload)
    if file is None:
        return None
    texts = {}
    for name, sha256 in directory.code.items():
        path, given = directory.place / code_file(name, sha256), "other bytes than were written"
        try:
            texts[name] = read_text(path)
            if sha256_of(name, texts[name]) == sha256:
                continue
        except (FileNotFoundError, ValueError) as error:  # the text may be no UTF-8 and no base64
            given = reason_of(error)
        expected = f"the unchanged code of {name}, which the sweep stored"
        raise UserError(str(path), given=given, expected=expected, fix=f"restore the file from a copy of {name}")
    return UserCode(f"{full_name(directory.place)}/code", file.name, texts, is_apart=True)


def code_of_json(path: Path, spec: Sweep) -> UserCode | None:
    """As `code_of`, for a sweep given by a JSON file, such as a `sweep.json`."""
    file = user_file(spec.workload)
    if file is None:
        return None
    if path.name == SWEEP_FILE and not file.is_absolute():
        return code_of(SweepDirectory.open(path.parent))
    return read_user_code(file)


def edited_since(directory: SweepDirectory) -> str:
    """A sentence on the user's files that have changed since the sweep stored them; empty if none has."""
    folder = directory.provenance.get("code_folder")
    files = {name: Path(folder, name) for name in directory.code} if folder else {}
    edited = [
        name
        for name, file in files.items()
        if file.is_file() and sha256_of(name, stored_text(file)) != directory.code[name]
    ]
    stored = "the sweep goes on with the copy that it stores; to train the new text, begin another sweep"
    return f"{', '.join(edited)} in {folder} changed since the sweep began: {stored}" if edited else ""


def named_files(pinned: Mapping[str, Value]) -> tuple[str, ...]:
    """The absolute paths of existing files among the values."""
    texts = [value for value in pinned.values() if isinstance(value, str)]
    return tuple(text for text in texts if text.startswith("/") and Path(text).is_file())


def sha256_of_files(pinned: Mapping[str, Value]) -> dict[str, str]:
    """By path, of `named_files`."""
    return {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in named_files(pinned)}


def check_unchanged(directory: SweepDirectory, pinned: Mapping[str, Value]) -> None:
    """Raises UserError if a file outside the sweep, such as a corpus, is missing or has changed."""
    digests = sha256_of_files(pinned)
    for path in (path for path, sha256 in directory.files.items() if digests.get(path) != sha256):
        given = f"the file {path}, which has changed" if path in digests else f"a missing file {path}"
        fix = f"restore the file and run attnsweep resume {as_argument(directory.place)}; or begin another sweep"
        expected = f"the file that the sweep began with, whose sha256 begins with {directory.files[path][:12]}"
        raise UserError(name_of(directory.place), given=given, expected=expected, fix=fix)
