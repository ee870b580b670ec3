"""Writes files that the user names. If writing fails, a file that was there before stays as it was."""

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnsweep.orchestrator.storage.errors import is_fault, store_error
from attnsweep.orchestrator.storage.local import sync
from attnsweep.workloads.errors import UserError


@contextmanager
def writing_file(out: Path, flag: str = "--out") -> Iterator[Path]:
    """Yields a temporary path, which replaces `out` at the end; after an exception `out` is unchanged.

    If `out` is a link, the link itself is replaced. Its target, which may be a stranger's file, stays unchanged.

    Raises:
        UserError: If `out` is anything else, such as a folder, or if writing fails, also within the block.
        StoreError: If the disk fails.
    """
    refuse_special(out, flag)
    temporary = out.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        try:
            yield temporary
            sync(temporary)
            temporary.replace(out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise refused(out, flag, error) from error


@contextmanager
def writing_folder(out: Path) -> Iterator[Path]:
    """Yields a temporary folder, which becomes `out` (new or empty) at the end; nothing is left after an exception.

    Raises:
        UserError: If `out` is anything else, such as a file, or if writing fails, also within the block.
        StoreError: If the disk fails.
    """
    temporary = out.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise unwritable(
                out, "--out", "this path is a file, or a folder that is not empty", kind="new or empty folder"
            )
        make_folder(temporary, "--out")
        try:
            yield temporary
            for file in temporary.iterdir():
                sync(file)
            temporary.replace(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise refused(out, "--out", error, kind="folder") from error


def check_output(out: Path) -> None:
    """Refuses what `writing_file` could not write, before long work whose result would be lost. Writes nothing."""
    refuse_special(out)
    if not out.parent.is_dir():
        raise unwritable(out, "--out", f"the folder {out.parent} does not exist")
    if not os.access(out.parent, os.W_OK):
        raise unwritable(out, "--out", f"the folder {out.parent} is not writable for you")


def refuse_special(out: Path, flag: str = "--out") -> None:
    """Refuses anything but a regular file, or a valid name of none yet.

    Replacing `/dev/null` by a file, for example, would break the machine.
    """
    try:
        mode = out.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused(out, flag, error) from error
    except ValueError as error:
        raise unwritable(out, flag, str(error)) from error
    if not stat.S_ISREG(mode):
        raise unwritable(out, flag, "this path is a folder, a device or a pipe")


def make_folder(folder: Path, flag: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(folder, flag, error, kind="folder") from error


def refused(path: object, flag: str, error: OSError, kind: str = "file") -> UserError:
    """A StoreError if the machine is at fault, otherwise a UserError that suggests another path."""
    if is_fault(error):
        return store_error(str(path), error, expected=f"a {kind} that can be written")
    return unwritable(path, flag, error.strerror or str(error), kind)


def unwritable(path: object, flag: str, reason: str | None, kind: str = "file") -> UserError:
    return UserError(
        flag, given=str(path), expected=f"a {kind} that can be written", fix=f"choose another path ({reason})"
    )
