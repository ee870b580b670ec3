"""The user's code that a sweep runs: stored in its directory, checked by its sha256, and run only if it is trusted."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory, code_file
from attnsweep.orchestrator.storage.trust import is_trusted, trust
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import UserCode, read_user_code, sha256_of_text

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload


def load_workload_of(directory: SweepDirectory) -> "Workload[Any]":
    """The workload of a sweep: of its stored code, or the installed one that it names.

    Raises:
        UserError: If it is gone, its code is not trusted, or a stored file is not the one that the sweep recorded.
    """
    from attnsweep.workloads.registry import load_workload

    return load_workload(directory.spec.workload, trusted_code(directory))


def trusted_code(directory: SweepDirectory) -> UserCode | None:
    """The user's code that a sweep runs; `None` if it runs that of an installed package.

    Raises:
        UserError: If this user does not trust it, or a stored file is not the one that the sweep recorded.
    """
    code = _code_of(directory)
    if code is not None and not is_trusted(code.sha256):
        raise UserError(
            str(directory.place),
            given=f"code that you have not run before: {', '.join(code.texts)}",
            expected="a sweep of your own, or one whose code you trust",
            fix="read its files, which lie in its folder code; then add --trust to run them",
        )
    return code


def trust_code_of(directory: SweepDirectory, say: Callable[[str], None]) -> None:
    """Trusts the code of a sweep from now on.

    Args:
        directory: The sweep.
        say: Called with a line for each file.

    Raises:
        UserError: If a stored file is not the one that the sweep recorded.
    """
    code = _code_of(directory)
    if code is None:
        say(f"{directory.place} runs no code of users: its workload {directory.spec.workload} is an installed one")
        return
    for name, sha256 in code.sha256.items():
        stored = f"{directory.place}/{code_file(sha256)}" if directory.code else f"{code.folder}/{name}"
        say(f"trusted: {name} ({stored}, sha256 {sha256})")
    trust(code.sha256)


def directory_of_record(reference: str) -> SweepDirectory | None:
    """The sweep whose `sweep.json` SPEC is; `None` if it is another thing, such as a spec that was written by hand."""
    path = Path(reference)
    if path.name != SWEEP_FILE:
        return None
    try:
        return SweepDirectory.open(path.parent)
    except UserError:
        return None


def named_by_file_alone(spec: Sweep, code: UserCode) -> Sweep:
    """The spec without the folder of the workload's file, which need not outlive the run."""
    return spec.but(workload=f"{code.main}:{spec.workload.rpartition(':')[2]}")


def _code_of(directory: SweepDirectory) -> UserCode | None:
    place, colon, _ = directory.spec.workload.rpartition(":")
    if not colon or not place.endswith(".py"):
        return None
    # Sweeps of earlier versions stored a path alone.
    return _stored_code(directory, Path(place).name) if directory.code else read_user_code(Path(place))


def _stored_code(directory: SweepDirectory, main: str) -> UserCode:
    if main not in directory.code:
        raise UserError(
            f"{directory.place}/{SWEEP_FILE}",
            given=f"the files {', '.join(directory.code)}",
            expected=f"{main} among them, which the workload names",
            fix="restore the file: a sweep's record is not edited",
        )
    texts = {name: _stored_text(directory, name, sha256) for name, sha256 in directory.code.items()}
    return UserCode(f"{directory.place.full_name}/code", main, texts)


def _stored_text(directory: SweepDirectory, name: str, sha256: str) -> str:
    file = f"{directory.place}/{code_file(sha256)}"
    try:
        text = directory.place.read_text(code_file(sha256))
    except (OSError, ValueError) as error:
        given = getattr(error, "strerror", None) or str(error)
    else:
        if sha256_of_text(text) == sha256:
            return text
        given = f"sha256 {sha256_of_text(text)}"
    raise UserError(
        file, given=given, expected=f"{name} as the sweep stored it", fix=f"restore it from a copy of {name}"
    )
