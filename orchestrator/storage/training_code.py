"""The code that a workload's trainings run: the modules of the workload and the trainer, and all that they import.

Imports of our package, of the workload's own package and of modules beside the user's file are followed. They are read
from the modules' text, so the result does not depend on what this process has loaded.
"""

import ast
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnsweep.workloads.user_code import MODULE_PREFIX, user_modules

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
    scope = _Scope(type(workload).__module__)
    return {scope.shown(name): digest for name, digest in sorted(_followed(scope).items())}


def installed_modules(workload: "Workload[Any]") -> list[str]:
    """The modules that `digests_of` follows and that other machines import from what is installed there."""
    scope = _Scope(type(workload).__module__)
    return [name for name in _followed(scope) if scope.is_installed(name)]


def digests_here(modules: Iterable[str]) -> dict[str, str]:
    """A digest of the code of each of these modules that this process would import."""
    files = {name: _file_of(name) for name in modules}
    return {name: _read(file.read_bytes())[0] for name, file in files.items() if file is not None}


def _followed(scope: "_Scope") -> dict[str, str]:
    found: dict[str, str] = {}
    queue = [scope.own, _TRAINER]
    while queue:
        name = queue.pop()
        if name in found or (file := scope.file_of(name)) is None:
            continue
        found[name], imports = _read(file.read_bytes())
        package = name if file.stem == "__init__" else name.rpartition(".")[0]
        for each in (name, *_resolved(imports, package)):
            queue += _with_parents(each)
    assert _TRAINER in found, _TRAINER
    return found


class _Scope:
    """Decides which modules are ours or the user's, and finds their files.

    Args:
        own: The module of the workload.
    """

    def __init__(self, own: str) -> None:
        self.own = own
        self._packages = _OURS | {own.partition(".")[0]}
        self._folders = {Path(module.__file__).parent for module in user_modules() if module.__file__}

    def file_of(self, name: str) -> Path | None:
        """The file of a module; `None` for a library's module, and for a name that is no module."""
        if name == self.own:
            file = getattr(sys.modules[name], "__file__", None)
            return Path(file) if file else None
        top = name.partition(".")[0]
        if top in self._packages:
            return _file_of(name)
        folders = [each for each in self._folders if (each / top).is_dir() or (each / f"{top}.py").is_file()]
        file = _file_of(name) if folders else None
        return file if file and any(map(file.resolve().is_relative_to, folders)) else None

    def is_installed(self, name: str) -> bool:
        """Whether it is of a package, and no file of the user's."""
        return name.partition(".")[0] in self._packages and not name.startswith((MODULE_PREFIX, "__main__"))

    def shown(self, name: str) -> str:
        """The module's name, independent of the location of the user's file and of the package that holds ours."""
        if name.startswith(MODULE_PREFIX):
            return Path(str(sys.modules[name].__file__)).name
        return name.removeprefix(f"{_DISTRIBUTION}.")


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


def _with_parents(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def _resolved(imports: Iterable[tuple[int, str]], package: str) -> Iterator[str]:
    parts = package.split(".")
    for level, name in imports:
        yield ".".join([*parts[: len(parts) + 1 - level], name]) if level else name


@functools.cache
def _read(source: bytes) -> tuple[str, tuple[tuple[int, str], ...]]:
    """A digest of the code, and the names that it imports, each with its number of leading dots."""
    try:
        tree = ast.parse(source)
        code = repr(_plain(tree)).encode(errors="surrogatepass")
        imports = tuple(dict.fromkeys(_imports(tree)))
    except (SyntaxError, ValueError, RecursionError):
        code, imports = source, ()
    return hashlib.sha256(code).hexdigest()[:16], imports


def _imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import():
            yield from ((0, alias.name) for alias in node.names)
        case ast.ImportFrom():
            # A name imported from a package may be one of its modules.
            prefix = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{prefix}{alias.name}") for alias in node.names)
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            for other in node.orelse:
                yield from _imports(other)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _imports(child)


def _plain(node: object) -> object:
    """The tree as nested lists, without docstrings and positions.

    Empty fields are left out: new versions of Python add some.
    """
    match node:
        case ast.AST():
            fields = [(name, _plain(value)) for name, value in ast.iter_fields(node) if value is not None]
            return [type(node).__name__, *((name, value) for name, value in fields if value != [])]
        case list():
            return [_plain(each) for each in node if not _is_text(each)]
        case _:
            return repr(node)


def _is_text(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
