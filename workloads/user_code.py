"""Running a user's own Python file: a sweep, a workload, or both."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workloads.errors import UserError

MODULE_PREFIX = "attnsweep_user_"
"""Names of modules made from users' files begin so: other machines cannot import them."""


def load_module(path: Path) -> ModuleType:
    """A user's Python file as a module; it is run once per process, however often it is asked for.

    Raises:
        UserError: If there is no such file, or it fails to run.
    """
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    module_spec = importlib.util.spec_from_file_location(name, path.resolve())
    if module_spec is None or module_spec.loader is None or not path.is_file():
        raise UserError("SPEC", given=str(path), expected="a Python file", mend="check the path")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError) or not isinstance(error, Exception | SystemExit):
            raise
        raise _error_of_file(path, error) from error
    return module


def user_modules() -> list[ModuleType]:
    """The modules made from users' files so far, which other machines must be sent by value."""
    return [module for name, module in sys.modules.items() if name.startswith(MODULE_PREFIX)]


def _module_name(path: Path) -> str:
    # The hash keeps apart files of one name in two folders.
    digest = hashlib.blake2s(str(path.resolve()).encode(), digest_size=4).hexdigest()
    return f"{MODULE_PREFIX}{path.stem}_{digest}"


def _error_of_file(path: Path, error: BaseException) -> UserError:
    if isinstance(error, SyntaxError):
        return UserError(
            str(path),
            given=(error.text or "").strip(),
            expected=f"Python ({error.msg})",
            mend=f"see line {error.lineno}",
        )
    return UserError(
        str(path),
        given=f"{type(error).__name__}: {error}",
        expected="a file that runs",
        mend=f"try: python {path}",
    )
