"""Running a user's own Python file: a sweep, a workload, or both."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from workloads.errors import UserError

MODULE_PREFIX = "attnsweep_user_"
"""Names of modules made from users' files begin so: other machines cannot import them."""


def load_module(path: Path) -> ModuleType:
    """Runs a user's Python file as a module.

    Raises:
        UserError: If there is no such file, or it fails to run.
    """
    name = MODULE_PREFIX + path.stem
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None or not path.is_file():
        raise UserError("SPEC", given=str(path), expected="a Python file", mend="check the path")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except UserError:
        raise
    except SyntaxError as error:
        raise UserError(
            str(path),
            given=(error.text or "").strip(),
            expected=f"Python ({error.msg})",
            mend=f"see line {error.lineno}",
        ) from error
    except Exception as error:  # A user's file may raise anything; it is the user's to mend.
        raise UserError(
            str(path),
            given=f"{type(error).__name__}: {error}",
            expected="a file that runs",
            mend=f"try: python {path}",
        ) from error
    return module


def user_modules() -> list[ModuleType]:
    """The modules made from users' files so far, which other machines must be sent by value."""
    return [module for name, module in sys.modules.items() if name.startswith(MODULE_PREFIX)]
