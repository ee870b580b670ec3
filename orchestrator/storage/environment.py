"""The environment that a training runs in (versions of libraries, and code), and the provenance of a sweep (where, when
and by whom it was started).
"""

import getpass
import hashlib
import importlib.metadata
import json
import os
import platform
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.record import Record
from attnsweep.orchestrator.storage.training_code import digests_of
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload


Engine: TypeAlias = Literal["vmapped", "blocks", "merged"]
"""The program that takes the steps of trainings; docs/engines.md describes the engines."""
_ENGINE, _MACHINE = "engine", "machine"
_LIBRARIES = ("attnsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "numpy")
_MOST_NAMED = 5


class Environment(Record):
    """The environment that trainings run in: versions of libraries, the type of machine, and digests of the code.

    Attributes:
        versions: Version of each library, of `python`, and of the compiler unless the engine is `vmapped`; under
            `machine`, the type of CPU or GPU that trains.
        code: Digest by module, from `digests_of`.
    """

    versions: Mapping[str, str]
    code: Mapping[str, str]

    @classmethod
    def current(cls, workload: "Workload[Any]", engine: Engine = "vmapped") -> Self:
        """Returns the environment of this process (versions and code), for one workload and engine.

        Raises:
            UserError: If the engine does not run on this machine.
        """
        from attnsweep.workloads.engine.process import processor

        return cls(versions=versions(engine), code=digests_of(workload)).on(processor())

    def on(self, machine: str) -> Self:
        """Returns a copy of the environment for the given type of machine, such as `x86_64, AVX2` or the model of a
        GPU."""
        return self.model_copy(update={"versions": {**self.versions, _MACHINE: machine}})

    @property
    def machine(self) -> str | None:
        """The type of machine that trains, such as `x86_64, AVX2`; `None` if it was not recorded."""
        return self.versions.get(_MACHINE)

    @property
    def torch(self) -> str:
        """The version of PyTorch, without its build suffix such as `+cu124`."""
        return self.versions.get("torch", "of an unknown version").partition("+")[0]

    @property
    def type_in_words(self) -> str:
        """The type of machine and the version of PyTorch, as text. The last bits of results depend on them."""
        return f"{self.machine or 'a machine whose type was not recorded'}, PyTorch {self.torch}"

    @property
    def engine(self) -> Engine:
        """The name of the engine, the implementation that computes the optimization steps of trainings."""
        match self.versions.get(_ENGINE, "").partition(",")[0]:
            case "":
                return "vmapped"
            case "merged":
                return "merged"
            case _:
                return "blocks"

    @property
    def id(self) -> str:
        """The environment's id: a hash of its versions and code, 12 hexadecimal digits."""
        content = json.dumps([dict(self.versions), dict(self.code)], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def changes(self, later: "Environment") -> list[str]:
        """Lists in words how the versions and the code of a later environment differ from this one's. Types of machines
        are not compared.

        A sweep may train on machines of several types.
        """
        differences = [
            f"{name} {self.versions.get(name, 'not recorded')} -> {later.versions.get(name, 'not recorded')}"
            for name in _differing(self.versions, later.versions)
            if name != _MACHINE
        ]
        modules = _differing(self.code, later.code)
        if modules and not self.code.keys() & later.code.keys():
            return [*differences, "code, which was recorded in another form and cannot be compared"]
        if len(modules) > _MOST_NAMED:
            modules[_MOST_NAMED:] = [f"{len(modules) - _MOST_NAMED} more"]
        return [*differences, f"code of {', '.join(modules)}"] if modules else differences


def _differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


# The result is cached, because `importlib.metadata` reads the disk, and a sweep needs each version several times.
_version_of = cache(importlib.metadata.version)


def versions(engine: Engine = "vmapped") -> dict[str, str]:
    """Returns the versions of Python, of the libraries that a sweep uses, and of the compiler if the engine uses one.

    Raises:
        UserError: If the engine does not run on this machine.
    """
    installed = {"python": platform.python_version()} | {name: _version_of(name) for name in _LIBRARIES}
    if engine == "vmapped":
        return installed
    from attnsweep.workloads.engine.compiling.libraries import NoCompilerError, block_engine, merged_engine

    try:
        return {**installed, _ENGINE: merged_engine() if engine == "merged" else block_engine()}
    except NoCompilerError as error:
        raise UserError(
            "engine",
            given=f"the engine {engine}, which cannot run here: {error}",
            expected="a machine that can compile this engine's programs",
            fix="use another machine, or start a new sweep with --engine vmapped",
        ) from error


def new_identity(name: str) -> str:
    """Returns a new readable name for a sweep. It ends with random characters, so that sweeps that start in the same
    second get different names.
    """
    return f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def current_provenance() -> dict[str, Any]:
    """Returns this process's command, user, machine and versions of libraries."""
    command = shlex.join(without_credentials(word) for word in sys.argv)
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # The command may contain paths that are not UTF-8. They are escaped, because the record must be UTF-8.
        "command": command.encode(errors="backslashreplace").decode(),
        "user": getpass.getuser(),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "git_commit": _git_commit(),
        "versions": versions(),
    }


def _git_commit() -> str | None:
    try:
        process = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None
