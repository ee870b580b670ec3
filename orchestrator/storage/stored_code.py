"""The user's code that a sweep runs: stored in the sweep's directory, verified by its sha256, run only if trusted."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsweep.orchestrator.storage.sources import refuse_merged
from attnsweep.orchestrator.storage.stored_bases import offer_bases
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory, code_file
from attnsweep.orchestrator.storage.trust import is_trusted, trust
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import UserCode, read_user_code, sha256_of_text, user_file

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload


def load_workload_of(directory: SweepDirectory) -> "Workload[Any]":
    """Returns a sweep's workload, from its stored code or an installed package, and puts the sweep's bases where the
    workload finds them.

    Raises:
        UserError: If it is not installed any more, its code is not trusted, or a stored file differs from the record.
    """
    from attnsweep.workloads.registry import load_workload

    code = code_of(directory)
    check_trusted(code, directory.place)
    offer_bases(directory)
    return load_workload(directory.spec.workload, code)


def code_of(directory: SweepDirectory) -> UserCode | None:
    """Returns the user's code that a sweep runs; `None` if the workload comes from an installed package. Executes
    nothing.

    Raises:
        UserError: If a file is missing, or differs from the one that the sweep recorded; if nothing is trained in the
            directory, because it was merged for analysis.
    """
    refuse_merged(directory.place, directory.sources)
    directory = directory.with_files()
    file = user_file(directory.spec.workload)
    if file is None:
        return None
    # Sweeps of earlier versions stored only the path of the code, not the code itself.
    return _stored_code(directory, file.name) if directory.code else read_user_code(file)


def code_of_json(path: Path, spec: Sweep) -> UserCode | None:
    """Returns the user's code that a sweep in a JSON file, such as a `sweep.json`, runs. Executes nothing.

    Raises:
        UserError: If a file is missing, or differs from the one that the sweep recorded.
    """
    file = user_file(spec.workload)
    if file is None:
        return None
    if path.name == SWEEP_FILE and not file.is_absolute():
        return code_of(SweepDirectory.open(path.parent))
    return read_user_code(file)


def check_trusted(code: UserCode | None, where: object) -> None:
    """Raises an error for user code that this user does not trust.

    Raises:
        UserError: With the names of its files.
    """
    if code is not None and not is_trusted(code.sha256):
        files = ", ".join(code.texts)
        raise UserError(
            str(where),
            given=f"code that you have not run before: {files}",
            expected="a sweep whose code you wrote or trust",
            fix=f"read the files in the folder {code.folder}, then add --trust to run them",
        )


def trust_code(code: UserCode | None, say: Callable[[str], None]) -> None:
    """Trusts the user's code from now on, and lists each of its files by calling `say`."""
    if code is None:
        say("nothing to trust: the workload is in an installed package")
        return
    for name, sha256 in code.sha256.items():
        say(f"trusted: {name}, sha256 {sha256}")
    trust(code.sha256, say)


def named_by_file_alone(spec: Sweep, code: UserCode) -> Sweep:
    """Returns the spec with the workload's file named without its folder, because the folder need not outlive the
    run."""
    return spec.but(workload=f"{code.main}:{spec.workload.rpartition(':')[2]}")


def _stored_code(directory: SweepDirectory, main: str) -> UserCode:
    if main not in directory.code:
        files = ", ".join(directory.code)
        raise UserError(
            f"{directory.place}/{SWEEP_FILE}",
            given=f"a record that names only the code files {files}",
            expected=f"a record that also names {main}, the file of the workload",
            fix="restore the file from a copy",
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
        file,
        given=given,
        expected=f"the unchanged code of {name}, which the sweep stored",
        fix=f"restore the file from a copy of {name}",
    )
