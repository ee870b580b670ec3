"""Writes files that the user names. A path that cannot be written is a UserError, a disk that fails an OSError."""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attnsweep.orchestrator.storage.files import naming, sync
from attnsweep.workloads.errors import UserError


@contextmanager
def writing_file(out: Path, flag: str = "--out") -> Iterator[Path]:
    """Yields a temporary path, which replaces `out` at the end; after an exception `out` is unchanged.

    A link is replaced itself: its target may be a stranger's file.
    """
    check_output(out, flag)
    temporary = out.with_name(f".{secrets.token_hex(8)}.tmp")
    with refusing(out, flag), naming(out):
        try:
            yield temporary
            sync(temporary)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing_folder(out: Path) -> Iterator[Path]:
    """Yields a temporary folder, which becomes `out` (new or empty) at the end; nothing is left after an exception."""
    temporary = out.with_name(f".{secrets.token_hex(8)}.tmp")
    with refusing(out, "--out", "new or empty folder"), naming(out):
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise FileExistsError(None, "this path is a file, or a folder that is not empty", str(out))
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for file in temporary.iterdir():
                sync(file)
            temporary.replace(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def check_output(out: Path, flag: str = "--out") -> None:
    """Refuses what `writing_file` could not write, for a check before long work. Writes nothing."""
    try:
        with suppress(FileNotFoundError):
            # Replacing `/dev/null` by a file, for example, would break the machine.
            if not stat.S_ISREG(out.stat().st_mode):
                raise unwritable(out, flag, "this path is a folder, a device or a pipe")
        if not os.access(out.parent.resolve(strict=True), os.W_OK):
            raise unwritable(out, flag, f"the folder {out.parent} is not writable for you")
    except (OSError, ValueError) as error:
        raise unwritable(out, flag, getattr(error, "strerror", None) or str(error)) from error


def make_folder(folder: Path, flag: str) -> None:
    with refusing(folder, flag, "folder"):
        folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def refusing(path: Path, flag: str, kind: str = "file") -> Iterator[None]:
    """An OSError for which another path helps becomes a UserError."""
    try:
        yield
    except (PermissionError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise unwritable(path, flag, error.strerror, kind) from error


def unwritable(path: object, flag: str, reason: str | None, kind: str = "file") -> UserError:
    fix = f"choose another path ({reason})"
    return UserError(flag, given=str(path), expected=f"a {kind} that can be written", fix=fix)
