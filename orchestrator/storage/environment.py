"""What a training depends on besides its parameters and seed: the versions and the code that train it."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

from attnsweep.orchestrator.storage.training_code import digests_of

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload

_LIBRARIES = ("attnsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "numpy")
_MOST_NAMED = 5


class Environment(BaseModel):
    """Versions of libraries, and a digest of each module that trains.

    Attributes:
        versions: By library; `python` among them.
        code: As `digests_of` gives it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: Mapping[str, str]
    code: Mapping[str, str]

    @classmethod
    def current(cls, workload: "Workload[Any]") -> Self:
        """That of this process, for one workload."""
        return cls(versions=versions(), code=digests_of(workload))

    @property
    def id(self) -> str:
        """Equal for two environments if and only if they are equal."""
        content = json.dumps([dict(self.versions), dict(self.code)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def changes(self, later: "Environment") -> list[str]:
        """What differs in another one, in words: nothing if and only if they are equal."""
        found = [
            f"{name} {self.versions.get(name, 'not recorded')} -> {later.versions.get(name, 'not recorded')}"
            for name in _differing(self.versions, later.versions)
        ]
        modules = _differing(self.code, later.code)
        if modules and not self.code.keys() & later.code.keys():
            return [*found, "code, which was recorded in another form and cannot be compared"]
        if len(modules) > _MOST_NAMED:
            modules[_MOST_NAMED:] = [f"{len(modules) - _MOST_NAMED} more"]
        return [*found, f"code of {', '.join(modules)}"] if modules else found


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def versions() -> dict[str, str]:
    """Of Python and the libraries that a sweep runs on."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _LIBRARIES}
