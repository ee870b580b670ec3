"""Files that a user names, as by `--out`: written aside, then renamed, so that a failure leaves what was there."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnsweep.orchestrator.storage.local import sync
from attnsweep.workloads.errors import UserError


@contextmanager
def writing_file(out: Path, flag: str = "--out") -> Iterator[Path]:
    """A path to write to in place of `out`, which it replaces when the block ends; an exception leaves `out` alone.

    A link is replaced, not what it leads to: it may be a stranger's.

    Args:
        out: A new file, or a regular one to be replaced.
        flag: The option that named it.

    Raises:
        UserError: If something else stands there, or writing fails, in the block too.
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
        raise unwritable(out, flag, error.strerror or str(error)) from error


def check_output(out: Path, flag: str = "--out") -> None:
    """Checks, before the work is done, that `writing_file` can write a file; touches nothing.

    Raises:
        UserError: If not.
    """
    refuse_special(out, flag)
    if not out.parent.is_dir():
        raise unwritable(out, flag, f"there is no folder {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise unwritable(out, flag, f"no right to write to the folder {out.parent}")


def refuse_special(out: Path, flag: str = "--out") -> None:
    """Checks that nothing but a regular file would be replaced: `/dev/null` renamed over is gone for everybody.

    Raises:
        UserError: If something else stands there, or the name is none.
    """
    try:
        mode = out.stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise unwritable(out, flag, getattr(error, "strerror", None) or str(error)) from error
    if not stat.S_ISREG(mode):
        raise unwritable(out, flag, "a folder, a device or a pipe is there")


def make_folder(folder: Path, flag: str) -> None:
    """Makes a folder for files that a user asked for, if it does not exist.

    Args:
        flag: The option that asked for them.

    Raises:
        UserError: If it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, flag, error.strerror, kind="folder") from error


def unwritable(path: object, flag: str, reason: str | None, kind: str = "file") -> UserError:
    """The refusal of a file, folder or directory that an option named and that cannot be written."""
    return UserError(flag, given=str(path), expected=f"a {kind} that can be written", fix=f"choose another ({reason})")
