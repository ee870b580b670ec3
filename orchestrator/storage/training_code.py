"""Finds the code that a workload's trainings run, and computes digests of it: the modules of the workload and the
trainer, and all that they import.

Imports of our package, of the workload's own package and of the user's modules are followed. Imports are found in the
source texts, so the result does not depend on which modules this process has imported.
"""

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsweep.workloads.user_code import UserCode, imports_of, resolved, user_code_of, with_parents

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload

_TRAINER = "attnsweep.orchestrator.training.trainer"
"""The module that trains packs (trainings that share one batched program) and makes their rows. It imports all code
that lies between a workload and the ledger."""


def digests_of(workload: "Workload[Any]") -> dict[str, str]:
    """Returns a digest of each module whose code takes part in training a workload, by the module's name.

    A workload in a file is named by its file. Comments, docstrings and layout do not change a digest.
    """
    scope = _Scope.of(workload)
    return {scope.shown(name): digest for name, digest in sorted(_followed(scope).items())}


def installed_modules(workload: "Workload[Any]") -> list[str]:
    """Returns the names of the modules that training a workload needs and imports from installed packages, not from
    the user's own files.

    The names are those in `digests_of`.
    """
    scope = _Scope.of(workload)
    return [name for name in _followed(scope) if scope.is_installed(name)]


def digests_here(modules: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns a digest of the code that this process would import for each of the given modules.

    Args:
        modules: The modules' names.
        known: Known digests, by the sha256 of a module's text. Texts with a known digest are not parsed.
    """
    return {name: (known or {}).get(_sha256(text)) or _read(text)[0] for name, text in _texts_here(modules).items()}


def digests_by_text(modules: Iterable[str]) -> dict[str, str]:
    """Returns for each of the given modules a digest of its parsed code. The keys of the dictionary are the sha256 of
    the modules' source texts.

    Other processes that have the same texts can use the digests without parsing the texts.
    """
    return {_sha256(text): _read(text)[0] for text in _texts_here(modules).values()}


def _texts_here(modules: Iterable[str]) -> dict[str, bytes]:
    files = {name: _file_of(name) for name in modules}
    return {name: file.read_bytes() for name, file in files.items() if file is not None}


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _followed(scope: "_Scope") -> dict[str, str]:
    digests: dict[str, str] = {}
    # `visited` also contains names that are no modules, so that each name is looked up only once. Most imported names
    # are functions or classes, and many are imported several times.
    queue, visited = [scope.own, _TRAINER], set[str]()
    while queue:
        name = queue.pop()
        if name in visited:
            continue
        visited.add(name)
        if (found := scope.find(name)) is None:
            continue
        source, is_package = found
        digests[name], imports = _read(source)
        queue += with_parents(name)
        queue += resolved(imports, name if is_package else name.rpartition(".")[0])
    assert _TRAINER in digests, _TRAINER
    return digests


@dataclass(frozen=True)
class _Scope:
    """Finds the source texts of the modules that take part in training: those of attnsweep, of the workload's package
    and of the user.

    Attributes:
        own: The module of the workload.
        code: The user's code, if the workload is in a file of the user.
    """

    own: str
    code: UserCode | None

    @classmethod
    def of(cls, workload: "Workload[Any]") -> "_Scope":
        code = user_code_of(workload)
        return cls(code.module_name if code else type(workload).__module__, code)

    def find(self, name: str) -> tuple[bytes, bool] | None:
        """Returns a module's source and whether the module is a package. Returns `None` for a module of another
        library, and for a name that is no module."""
        if self.code is not None and name in self.code.files:
            if self.code.files[name] is None:
                return None
            return self.code.text_of(name).encode(), self.code.is_package(name)
        if name == self.own:
            origin = getattr(sys.modules[name], "__file__", None)
            file = Path(origin) if origin else None
        else:
            file = _file_of(name) if self._is_followed(name) else None
        return None if file is None else (file.read_bytes(), file.stem == "__init__")

    def is_installed(self, name: str) -> bool:
        is_users = self.code is not None and name in self.code.files
        return self._is_followed(name) and not is_users and not name.startswith("__main__")

    def shown(self, name: str) -> str:
        """Shortens a module's name for records: omits the folder of the user's file, and the package name
        `attnsweep`."""
        if self.code is not None and name == self.own:
            return self.code.main
        return name.removeprefix("attnsweep.")

    def _is_followed(self, name: str) -> bool:
        return name.partition(".")[0] in ("attnsweep", self.own.partition(".")[0])


def _file_of(name: str) -> Path | None:
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # `find_spec` raises a ValueError for a loaded module that has no import spec.
        return None
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.origin else None
    # The module's file is looked up by path, because `find_spec` would import the parent packages.
    for folder in spec.submodule_search_locations or ():
        module = Path(folder, *parts)
        for file in (module / "__init__.py", module.with_suffix(".py")):
            if file.is_file():
                return file
    return None


@functools.cache
def _read(source: bytes) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Returns a digest of a module's code, and the names that the code imports.

    With each name comes the number of leading dots of a relative import.
    """
    try:
        tree = ast.parse(source)
        code = _plain(tree).encode(errors="surrogatepass")
        imports = tuple(dict.fromkeys(imports_of(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        code, imports = source, ()
    return hashlib.sha256(code).hexdigest()[:16], imports


def _plain(node: object) -> str:
    """Formats a syntax tree as nested lists, without docstrings and positions.

    Empty fields are left out, because new versions of Python add such fields.
    """
    if isinstance(node, ast.AST):
        fields = [(name, _plain(value)) for name in node._fields if (value := getattr(node, name, None)) is not None]
        shown = [f"({name!r}, {text})" for name, text in fields if text != "[]"]
        return f"[{', '.join([repr(type(node).__name__), *shown])}]"
    if isinstance(node, list):
        return f"[{', '.join([_plain(child) for child in node if not _is_docstring(child)])}]"
    # The result is written as Python would print nested lists whose innermost elements are the texts `repr(node)`.
    # Python prints a text in a list with quotes, hence the second `repr`.
    return repr(repr(node))


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
