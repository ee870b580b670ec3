"""Files that the user names: a path to be read, or a Python file to be run (a sweep, a workload, or both)."""

import hashlib
import importlib.util
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from attnsweep.workloads.errors import UserError, in_words


def given_file(path: Path, subject: str, expected: str, fix: str = "check the path") -> Path:
    """The regular file at a path, its links followed. Devices and pipes are refused: reading one may never end.

    Args:
        path: The path that the user gave.
        subject: The argument whose value the path is.
        expected: What kind of file is expected.
        fix: What to do if there is no such file.

    Raises:
        UserError: If there is no such file.
    """
    try:
        found = path.resolve(strict=True)
        if stat.S_ISREG(found.stat().st_mode):
            return found
        reason = "Is a directory" if found.is_dir() else "it is no regular file"
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError) as error:
        # Links that lead in a circle; a name that no file can have.
        reason = str(error)
    raise UserError(subject, given=str(path), expected=expected, fix=f"{fix} ({reason})")


MODULE_PREFIX = "attnsweep_user_"
"""The prefix of the names of modules made from users' files. Other machines cannot import these modules."""


def load_module(path: Path) -> ModuleType:
    """A user's Python file as a module; it is run once per process, however often it is asked for.

    Raises:
        UserError: If there is no such file, or it fails to run.
    """
    file = given_file(path, "SPEC", "a Python file")
    name = _module_name(file)
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, file)
    if module_spec is None or module_spec.loader is None:
        raise UserError("SPEC", given=str(path), expected="a Python file", fix="give it a name that ends in .py")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        with users_code(str(path), "a file that runs", f"try: python {path}"):
            module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def users_code(subject: str, expected: str, fix: str) -> Iterator[None]:
    """A context for running a user's own code: whatever it raises, `SystemExit` included, becomes a `UserError`.

    Args:
        subject: The file or reference that the code came from.
        expected: What the code should have done.
        fix: How to find the fault.

    Raises:
        UserError: In place of any other exception; Ctrl-C passes.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        line = (error.text or "").strip()
        see = f"see line {error.lineno}" if error.lineno else fix
        raise UserError(subject, given=line, expected=f"Python ({error.msg})", fix=see) from error
    except BaseException as error:
        raise UserError(subject, given=in_words(error) + _raised_at(error), expected=expected, fix=fix) from error


def user_modules() -> list[ModuleType]:
    """The modules made from users' files so far, which other machines must be sent by value."""
    return [module for name, module in sys.modules.items() if name.startswith(MODULE_PREFIX)]


def _module_name(file: Path) -> str:
    # The hash distinguishes files of the same name in different folders.
    digest = hashlib.blake2s(str(file).encode(), digest_size=4).hexdigest()
    return f"{MODULE_PREFIX}{file.stem}_{digest}"


def _raised_at(error: BaseException) -> str:
    """The last line of a user's file that the error came through."""
    frames = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = [line for module, line in frames if module.startswith(MODULE_PREFIX)]
    return f", in line {lines[-1]}" if lines else ""
