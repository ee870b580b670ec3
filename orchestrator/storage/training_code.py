"""The code that a workload's trainings run: the modules of the workload and the trainer, and all that they import.

Imports of our package, of the workload's own package and of modules of the user's code are followed. They are read
from the modules' text, so the result does not depend on what this process has loaded.
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

from attnsweep.workloads.imports import imports_of, resolved, with_parents
from attnsweep.workloads.user_code import UserCode, user_code_of

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload

_DISTRIBUTION = "attnsweep"
_OURS = frozenset({_DISTRIBUTION})
_TRAINER = "attnsweep.orchestrator.training.trainer"
"""Trains packs and makes rows of them. Its imports are all the code between a workload and the ledger."""


def digests_of(workload: "Workload[Any]") -> dict[str, str]:
    """A digest of each module's code, by the module's name; for a workload in a file, by the file's name.

    Comments, docstrings and layout do not count.
    """
    scope = _Scope.of(workload)
    return {scope.shown(name): digest for name, digest in sorted(_followed(scope).items())}


def installed_modules(workload: "Workload[Any]") -> list[str]:
    """The modules that `digests_of` follows and that other machines import from what is installed there."""
    scope = _Scope.of(workload)
    return [name for name in _followed(scope) if scope.is_installed(name)]


def digests_here(modules: Iterable[str], known: Mapping[str, str] | None = None) -> dict[str, str]:
    """A digest of the code of each of these modules that this process would import.

    Args:
        modules: Their names.
        known: Digests by the sha256 of a module's text, for texts that need not be parsed again.
    """
    found = {}
    for name, text in _texts_here(modules).items():
        found[name] = (known or {}).get(_sha256(text)) or _read(text)[0]
    return found


def digests_by_text(modules: Iterable[str]) -> dict[str, str]:
    """The digests of these modules by the sha256 of their texts, for a process that has the same texts."""
    return {_sha256(text): _read(text)[0] for text in _texts_here(modules).values()}


def _texts_here(modules: Iterable[str]) -> dict[str, bytes]:
    files = {name: _file_of(name) for name in modules}
    return {name: file.read_bytes() for name, file in files.items() if file is not None}


def _sha256(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _followed(scope: "_Scope") -> dict[str, str]:
    found: dict[str, str] = {}
    # Most names are of what a module holds, and asked for by many.
    queue, asked = [scope.own, _TRAINER], set[str]()
    while queue:
        name = queue.pop()
        if name in asked:
            continue
        asked.add(name)
        if (module := scope.find(name)) is None:
            continue
        found[name], imports = _read(module.source)
        queue += with_parents(name)
        queue += resolved(imports, name if module.is_package else name.rpartition(".")[0])
    assert _TRAINER in found, _TRAINER
    return found


@dataclass(frozen=True)
class _Module:
    source: bytes
    is_package: bool


@dataclass(frozen=True)
class _Scope:
    """Decides which modules are ours or the user's, and finds their texts.

    Attributes:
        own: The module of the workload.
        code: The user's code, if the workload is in a file.
    """

    own: str
    code: UserCode | None

    @classmethod
    def of(cls, workload: "Workload[Any]") -> "_Scope":
        code = user_code_of(workload)
        return cls(code.module_name if code else type(workload).__module__, code)

    def find(self, name: str) -> _Module | None:
        """A module; `None` for a library's module, and for a name that is no module."""
        if self.code is not None and name in self.code.files:
            if self.code.files[name] is None:
                return None
            return _Module(self.code.text_of(name).encode(), self.code.is_package(name))
        if name == self.own:
            known = getattr(sys.modules[name], "__file__", None)
            file = Path(known) if known else None
        else:
            file = _file_of(name) if self._is_followed(name) else None
        return None if file is None else _Module(file.read_bytes(), file.stem == "__init__")

    def is_installed(self, name: str) -> bool:
        """Whether it is of a package, and no file of the user's."""
        is_users = self.code is not None and name in self.code.files
        return self._is_followed(name) and not is_users and not name.startswith("__main__")

    def shown(self, name: str) -> str:
        """The module's name, independent of the location of the user's file and of the package that holds ours."""
        if self.code is not None and name == self.own:
            return self.code.main
        return name.removeprefix(f"{_DISTRIBUTION}.")

    def _is_followed(self, name: str) -> bool:
        return name.partition(".")[0] in _OURS | {self.own.partition(".")[0]}


def _file_of(name: str) -> Path | None:
    top, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # A module without a spec.
        return None
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.origin else None
    # By path, since `find_spec` would import the parents.
    for folder in spec.submodule_search_locations or ():
        module = Path(folder, *parts)
        for file in (module / "__init__.py", module.with_suffix(".py")):
            if file.is_file():
                return file
    return None


@functools.cache
def _read(source: bytes) -> tuple[str, tuple[tuple[int, str], ...]]:
    """A digest of the code, and the names that it imports, each with its number of leading dots."""
    try:
        tree = ast.parse(source)
        code = _plain(tree).encode(errors="surrogatepass")
        imports = tuple(dict.fromkeys(imports_of(tree)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        code, imports = source, ()
    return hashlib.sha256(code).hexdigest()[:16], imports


def _plain(node: object) -> str:
    """The tree as the text of nested lists, without docstrings and positions.

    Empty fields are left out: new versions of Python add some.
    """
    if isinstance(node, ast.AST):
        fields = [(name, _plain(value)) for name in node._fields if (value := getattr(node, name, None)) is not None]
        shown = [f"({name!r}, {text})" for name, text in fields if text != "[]"]
        return f"[{', '.join([repr(type(node).__name__), *shown])}]"
    if isinstance(node, list):
        return f"[{', '.join([_plain(each) for each in node if not _is_text(each)])}]"
    # Twice, since a list shows its texts in quotes.
    return repr(repr(node))


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
