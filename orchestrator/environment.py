"""What a training depends on besides its parameters and seed: the versions and the code that train it."""

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from workloads.user_code import MODULE_PREFIX, user_modules

if TYPE_CHECKING:
    from workloads.engine.contract import Workload

_LIBRARIES = ("attnsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "numpy")
_OUR_CODE = ("workloads", "search_spaces")
"""What draws configurations and trains them."""
_OUR_FILES = ("tasks.py", "trainer.py")
"""Of the orchestrator: what makes a training's seed, and what trains it."""
_OUR_PACKAGES = (*_OUR_CODE, "orchestrator", "infra")


class Environment(BaseModel):
    """Versions of libraries, and a hash of each body of code.

    Attributes:
        versions: By library; `python` among them.
        code: The first digits of a SHA-256 by package, by file, or by module of the user's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: Mapping[str, str]
    code: Mapping[str, str]

    @classmethod
    def current(cls, workload: "Workload[Any]") -> Self:
        """That of this process, for one workload."""
        code = {name: _digest(sorted(_folder(name).rglob("*.py"))) for name in _OUR_CODE}
        code |= {f"orchestrator/{name}": _digest([_folder("orchestrator") / name]) for name in _OUR_FILES}
        code |= {name: _digest([file]) for name, file in _users_code(workload)}
        return cls(versions=versions(), code=code)

    @property
    def id(self) -> str:
        """Equal for two environments if and only if they are equal."""
        content = json.dumps([dict(self.versions), dict(self.code)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def changes(self, later: "Environment") -> list[str]:
        """What another one has otherwise, in words. What only one of them names is not compared."""
        libraries = [
            f"{name} {version} -> {later.versions[name]}"
            for name, version in self.versions.items()
            if later.versions.get(name, version) != version
        ]
        code = [f"code of {name}" for name, digest in self.code.items() if later.code.get(name, digest) != digest]
        return libraries + code


def versions() -> dict[str, str]:
    """Of Python and the libraries that a sweep runs on."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _LIBRARIES}


def _users_code(workload: "Workload[Any]") -> Iterator[tuple[str, Path]]:
    """The user's files, the modules loaded from beside them, and those of the workload's own package."""
    files = [Path(module.__file__) for module in user_modules() if module.__file__]
    yield from ((file.name, file) for file in files)
    folders = {file.parent for file in files}
    package = type(workload).__module__.partition(".")[0]
    names = {package, *(path.stem for folder in folders for path in folder.iterdir())}.difference(_OUR_PACKAGES)
    for name, module in sorted(sys.modules.items()):
        top = name.partition(".")[0]
        # Few are left: some modules do not bear to be looked at.
        if top not in names or top.startswith(MODULE_PREFIX) or not (source := getattr(module, "__file__", None)):
            continue
        file = Path(source).resolve()
        beside = (folder / each for folder in folders for each in (top, f"{top}.py"))
        if top == package or any(map(file.is_relative_to, beside)):
            yield name, file


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
