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
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.record import Record
from attnsweep.workloads.errors import UserError

Engine: TypeAlias = Literal["eager", "compiled"]
_ENGINE, _MACHINE = "engine", "machine"
_LIBRARIES = ("attnsweep", "torch", "ray", "optuna", "mlflow", "pyarrow", "numpy")


class Environment(Record):
    """What trainings run in.

    Attributes:
        versions: By library, and of `python`; of attnsweep with its git commit, if it has one. `machine` is the type of
            CPU or GPU, `engine` the compiled engine with its compiler; without this entry the engine is eager.
    """

    versions: Mapping[str, str]

    @classmethod
    def current(cls, engine: Engine = "eager") -> Self:
        """Raises UserError if the engine does not run on this machine."""
        from attnsweep.workloads.engine.process import processor

        return cls(versions=versions(engine)).on(processor())

    def on(self, machine: str) -> Self:
        """The same versions on a type of machine, such as `x86_64, AVX2` or the model of a GPU."""
        return self.model_copy(update={"versions": {**self.versions, _MACHINE: machine}})

    @property
    def machine(self) -> str | None:
        """`None` if it was not recorded."""
        return self.versions.get(_MACHINE)

    @property
    def engine(self) -> Engine:
        return "compiled" if _ENGINE in self.versions else "eager"

    @property
    def id(self) -> str:
        """12 hexadecimal digits."""
        content = json.dumps(dict(self.versions), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:12]

    def changes(self, later: "Environment") -> list[str]:
        """How the versions differ. Machines are not compared: a sweep may train on several types."""
        return [
            f"{name} {self.versions.get(name, 'not recorded')} -> {later.versions.get(name, 'not recorded')}"
            for name in {**self.versions, **later.versions}
            if self.versions.get(name) != later.versions.get(name) and name != _MACHINE
        ]


@cache
def _version_of(library: str) -> str:
    version = importlib.metadata.version(library)
    if library != "attnsweep":
        return version
    # Empty where git does not know the package's files, as in site-packages.
    code = ("..", "../../workloads")
    commit = _git("-C", str(Path(__file__).parent), "log", "-1", "--format=%h", "--abbrev=12", "--", *code)
    return f"{version}, {commit}" if commit else version


def versions(engine: Engine = "eager") -> dict[str, str]:
    """Of libraries, and of the compiler if the engine has one. Raises UserError if the engine does not run here."""
    installed = {"python": platform.python_version()} | {name: _version_of(name) for name in _LIBRARIES}
    if engine == "eager":
        return installed
    from attnsweep.workloads.engine.compiling.building import compiled_engine
    from attnsweep.workloads.engine.executors import NoCompilerError

    try:
        return {**installed, _ENGINE: compiled_engine()}
    except NoCompilerError as error:
        given = f"the engine {engine}, which cannot run here: {error}"
        expected = "a machine that can compile this engine's programs"
        fix = "use another machine, or start a new sweep with --engine eager"
        raise UserError("engine", given=given, expected=expected, fix=fix) from error


def new_identity(name: str) -> str:
    """Ends with random characters, because sweeps may begin in the same second."""
    return f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def current_provenance() -> dict[str, Any]:
    command = shlex.join(without_credentials(word) for word in sys.argv)
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Paths in it may not be UTF-8, but the record is.
        "command": command.encode(errors="backslashreplace").decode(),
        "user": getpass.getuser(),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "git_commit": _git("rev-parse", "HEAD"),
        "versions": versions(),
    }


def _git(*words: str) -> str | None:
    try:
        process = subprocess.run(["git", *words], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None
