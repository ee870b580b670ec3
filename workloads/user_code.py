"""Reads and runs a user's Python file, with the modules in its folder that it imports.

They are run from their texts, alike from the user's folder, from the copy in a sweep directory, and on another machine,
which has neither. What else they read, such as a table, is carried with them if the workload declares it
(`Workload.files`).
"""

import ast
import base64
import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from attnsweep.workloads.errors import UserError, in_words
from attnsweep.workloads.files import given_file, unpacked

MODULE_PREFIX = "attnsweep_user_"
"""Of the module names under which users' files are imported."""
_PACKAGE_FILE = "__init__.py"
NAME_FILES = (
    'name the files that it reads, as in at.problem(..., files=("table.pt",)), and open them as'
    ' Path(__file__).with_name("table.pt")'
)
"""For code that reads a file which the sweep does not store, or finds it by the working directory."""


@dataclass(frozen=True)
class UserCode:
    """A user's Python file, the modules in its folder that it imports, and the files that it reads.

    Attributes:
        texts: By path within the folder, such as `mine.py` and `my_layers/law.py`; in base64 for other files, such as
            `table.pt`.
        is_apart: Whether the code's `__file__` is in a temporary folder with these files alone, as at `resume`.
    """

    folder: str
    main: str
    texts: Mapping[str, str]
    is_apart: bool = False

    @cached_property
    def sha256(self) -> dict[str, str]:
        """By path within the folder."""
        return {name: sha256_of(name, text) for name, text in self.texts.items()}

    def with_files(self, names: Iterable[str]) -> "UserCode":
        """With further files of its folder."""
        new = [name for name in (str(PurePosixPath(name)) for name in names) if name not in self.texts]
        for name in new:
            if any(part.startswith((".", "/")) for part in PurePosixPath(name).parts):
                expected = f"the path of a file below the folder of {self.main}, without hidden names"
                fix = "move the file there, and write its path relative to that folder"
                raise UserError("files", given=name, expected=expected, fix=fix)
        found = {name: stored_text(given_file(Path(self.folder, name), "files", "a file that exists")) for name in new}
        return replace(self, texts={**self.texts, **found}) if found else self

    @cached_property
    def module_name(self) -> str:
        """With a digest of the folder's path and the files' contents."""
        content = f"{self.folder}\n{self.main}\n{sorted(self.sha256.items())}\n{self.is_apart}"
        digest = hashlib.blake2s(content.encode(errors="surrogateescape"), digest_size=4).hexdigest()
        return f"{MODULE_PREFIX}{Path(self.main).stem.replace('.', '_')}_{digest}"

    @cached_property
    def files(self) -> dict[str, str | None]:
        """Paths by module name; `None` for a package without an `__init__.py`."""
        files: dict[str, str | None] = {self.module_name: self.main}
        for path in map(PurePosixPath, self.texts):
            if path.suffix != ".py":
                continue
            module = path.parent if path.name == _PACKAGE_FILE else path.with_suffix("")
            for package in module.parents:
                if package.parts:
                    files.setdefault(".".join(package.parts), None)
            files[".".join(module.parts)] = str(path)
        return files

    def source_text(self, module: str) -> str:
        """Empty for a package without an `__init__.py`."""
        file = self.files[module]
        return "" if file is None else self.texts[file]

    def offer(self) -> None:
        """Makes the user's modules importable, before installed ones; refused if another of this name is imported."""
        _FINDER.offer(self)

    def load(self, shown: str | None = None) -> ModuleType:
        """Imports the user's file, which runs once per process. Errors name it as `shown`, by default its full path."""
        if self.module_name not in sys.modules:
            self.offer()
            path = shown or str(Path(self.folder, self.main))
            fix = NAME_FILES if self.is_apart else f"try: python {path}"
            where = ", also from the sweep's copy and in another working directory" if self.is_apart else ""
            with users_code(path, f"a file that runs{where}", fix):
                importlib.import_module(self.module_name)
        return sys.modules[self.module_name]


def sha256_of(name: str, text: str) -> str:
    return hashlib.sha256(_content(name, text)).hexdigest()


def stored_text(file: Path) -> str:
    """A file's content as in `UserCode.texts`."""
    return _text(file) if file.suffix == ".py" else base64.b64encode(file.read_bytes()).decode()


def _content(name: str, text: str) -> bytes:
    return text.encode() if name.endswith(".py") else base64.b64decode(text)


def load_module(path: Path) -> ModuleType:
    """Imports a user's Python file, which runs only at the first call."""
    return read_user_code(path).load(str(path))


def read_user_code(path: Path) -> UserCode:
    """Reads a user's file and, recursively, the modules in its folder that it imports, also within functions. Runs
    none, and leaves out what Python would find elsewhere."""
    file = given_file(path, "SPEC", "a Python file")
    if file.suffix != ".py":
        fix = "give the file a name that ends in .py"
        raise UserError("SPEC", given=str(path), expected="the path of a Python file", fix=fix)
    texts: dict[str, str] = {}
    queue = [file.name]
    while queue:
        name = queue.pop()
        if name in texts:
            continue
        texts[name] = _text(file.parent / name)
        package = ".".join(PurePosixPath(name).parent.parts)
        imported = (_beside(file.parent, module) for module in _imported(texts[name], package))
        queue += [path for path in imported if path is not None]
    return UserCode(str(file.parent), file.name, dict(sorted(texts.items())))


def user_file(reference: str) -> Path | None:
    """The file of `file.py:Class`; `None` for a registered name or `module:Class`."""
    place, colon, _ = reference.rpartition(":")
    return Path(place) if colon and place.endswith(".py") else None


def user_code_of(workload: object) -> UserCode | None:
    """The code in which a workload's class is defined, with the files that it declares; `None` if installed."""
    loader = getattr(sys.modules.get(type(workload).__module__), "__loader__", None)
    return loader.code.with_files(getattr(workload, "files", ())) if isinstance(loader, _Loader) else None


def refuse_while_loading() -> None:
    """Refuses a run that the user's file would begin whenever it is loaded, which a run and a replay do too."""
    if _loading:
        expected = 'a call below the line `if __name__ == "__main__":`, which a load of the file passes over'
        fix = "move the call below such a line"
        raise UserError("run_sweep", given=f"a call while {_loading[-1]} is being loaded", expected=expected, fix=fix)


_loading: list[str] = []
"""The user's files that run at this moment, innermost last."""


@contextmanager
def users_code(subject: str, expected: str, fix: str) -> Iterator[None]:
    """Within, any exception of a user's code, even `SystemExit` but not `KeyboardInterrupt`, becomes a `UserError`."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        line = (error.text or "").strip()
        see = f"see line {error.lineno}" if error.lineno else fix
        raise UserError(subject, given=line, expected=f"valid Python code ({error.msg})", fix=see) from error
    except BaseException as error:
        frames = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
        lines = [line for module, line in frames if module.startswith(MODULE_PREFIX)]
        given = in_words(error) + (f", in line {lines[-1]}" if lines else "")
        raise UserError(subject, given=given, expected=expected, fix=fix) from error


class _Loader(ExecutionLoader):
    """Runs a user's modules from their texts."""

    def __init__(self, code: UserCode) -> None:
        self.code = code
        contents = {name: _content(name, text) for name, text in code.texts.items()}
        self._folder = str(unpacked(contents)) if code.is_apart else code.folder

    def get_filename(self, fullname: str) -> str:
        return str(Path(self._folder, self.code.files[fullname] or _PACKAGE_FILE))

    def get_code(self, fullname: str) -> CodeType:
        # Debuggers and tracebacks name the user's own file.
        file = str(Path(self.code.folder, self.code.files[fullname] or _PACKAGE_FILE))
        return compile(self.get_source(fullname), file, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        _loading.append(self.code.files[module.__name__] or module.__name__)
        try:
            # A command prints its answer on stdout.
            with redirect_stdout(sys.stderr):
                super().exec_module(module)
        finally:
            _loading.pop()

    def get_source(self, fullname: str) -> str:
        return self.code.source_text(fullname)

    def is_package(self, fullname: str) -> bool:
        file = self.code.files[fullname]
        return file is None or PurePosixPath(file).name == _PACKAGE_FILE


class _Finder(MetaPathFinder):
    """Of several codes with a module of the same name the latest wins."""

    def __init__(self) -> None:
        self._loaders: dict[str, _Loader] = {}

    def offer(self, code: UserCode) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        stale = [name for name in code.files if name in sys.modules and self._is_stale(name, code)]
        for name in stale:
            del sys.modules[name]
        self._loaders |= dict.fromkeys(code.files, _Loader(code))

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        loader = self._loaders.get(fullname)
        if loader is None:
            return None
        # A package gets no search path, so the import of a module that is not among the files fails.
        is_package = loader.is_package(fullname)
        spec = ModuleSpec(fullname, loader, origin=loader.get_filename(fullname), is_package=is_package)
        spec.has_location = True
        return spec

    def _is_stale(self, name: str, code: UserCode) -> bool:
        module = sys.modules[name]
        if isinstance(module.__loader__, _Loader):
            return module.__loader__.code != code
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_file() and _text(Path(file)) == code.source_text(name):
            return False
        given = f"a module {name}, although another module of this name is already imported ({file})"
        expected = "a module name that no imported module has"
        fix = "restart Python, or rename one of the two modules"
        raise UserError(str(Path(code.folder, code.files[name] or name)), given=given, expected=expected, fix=fix)


_FINDER = _Finder()


def _text(file: Path) -> str:
    # Decoded as Python does: by the encoding that the file declares, with any line endings.
    try:
        return importlib.util.decode_source(given_file(file, "SPEC", "a Python file").read_bytes())
    except (OSError, SyntaxError, ValueError) as error:
        fix = "correct the encoding or the permissions of the file"
        raise UserError(str(file), given=in_words(error), expected="a Python file in UTF-8", fix=fix) from error


def _imported(text: str, package: str) -> Iterator[str]:
    """Absolute names of what a module in `package` imports, each followed by its parent packages."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for level, name in _imports_in(ast.parse(text)):
            parts = package.split(".")
            absolute = ".".join([*parts[: len(parts) + 1 - level], name]) if level else name
            while absolute:
                yield absolute
                absolute = absolute.rpartition(".")[0]


def _imports_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """A file's imports as (number of leading dots, name)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # In `from package import name`, `name` may be a module of the package.
            prefix = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{prefix}{alias.name}") for alias in node.names)


def _beside(folder: Path, module: str) -> str | None:
    """A module's file, relative to the user's folder; `None` if it is not there."""
    parts = module.split(".")
    if not all(part.isidentifier() for part in parts) or _is_elsewhere(parts[0], folder):
        return None
    path = PurePosixPath(*parts)
    names = (str(path / _PACKAGE_FILE), f"{path}.py")
    return next((name for name in names if (folder / name).is_file()), None)


def _is_elsewhere(top: str, folder: Path) -> bool:
    if not ((folder / top).is_dir() or (folder / f"{top}.py").is_file()) or top in sys.stdlib_module_names:
        return True
    finders = (finder for finder in sys.meta_path if finder is not _FINDER)
    spec = next((candidate for finder in finders if (candidate := finder.find_spec(top, None)) is not None), None)
    if spec is None or spec.loader is None:
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return not all(Path(place).resolve().is_relative_to(folder) for place in places)
