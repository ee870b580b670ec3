"""The trainer as Ray runs it, in a process of its own: how its workload gets there, what it says of its machine."""

import platform
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import ray

from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.storage.environment import Engine, Environment, versions
from attnsweep.orchestrator.storage.training_code import digests_here
from attnsweep.orchestrator.training.messages import RunContext
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.executors.programs import KnownPrograms, Programs
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from attnsweep.workloads.user_code import UserCode, user_code_of


class Shipment:
    """A workload as it is sent.

    The code travels as text, and the receiver imports it under the module's name that it has here. So whatever is
    pickled later (parameters, errors) names its class, as for an installed workload.

    Args:
        workload: The problem.
        files: What its trainings read, as `given_file` finds it: absolute paths, and names of bases.
    """

    def __init__(self, workload: Workload[Any], files: Sequence[str] = ()) -> None:
        self.workload = workload
        self._files = files

    def __reduce__(self) -> tuple[object, ...]:
        files = {
            path: given_file(Path(path), "files", "a file that trainings read").read_bytes() for path in self._files
        }
        # The workload is the state, because that is unpickled after the code has been offered.
        return _unloaded, (user_code_of(self.workload), files), self.workload

    def __setstate__(self, workload: Workload[Any]) -> None:
        self.workload = workload


def _unloaded(code: UserCode | None, files: Mapping[str, bytes]) -> Shipment:
    if code is not None:
        code.offer()
    take_over(files)
    return Shipment.__new__(Shipment)


@dataclass(frozen=True)
class Settled:
    """Where a trainer is, and what it trains with.

    Attributes:
        node: Ray's id of the machine.
        host: The name of the machine.
        accelerator: The model of its GPU, or `cpu`.
        versions: By library.
        code: A digest by module, of those that the driver asked for and that are installed there.
        machine: The type of machine, as its rows' environment names it.
    """

    node: str
    host: str
    accelerator: str
    versions: Mapping[str, str]
    code: Mapping[str, str]
    machine: str = ""

    def changes_from(self, driver: Environment) -> list[str]:
        """What differs from the driver's environment, in words."""
        code = {name: digest for name, digest in driver.code.items() if name in self.code}
        here = Environment(versions=self.versions, code=self.code)
        return driver.model_copy(update={"code": code}).changes(here)


class TrainerActor(Trainer):
    """A trainer as Ray runs it."""

    def __init__(self, shipment: Shipment, run: RunContext, device: str, checkpoint_seconds: float) -> None:
        # Arrow looks for pandas once; it finds it if the user's workload has imported it.
        with importing(without=("pandas",)):
            pa.scalar(0)
        super().__init__(shipment.workload, run, device, checkpoint_seconds)

    def take_programs(self, programs: KnownPrograms) -> None:
        """Takes the programs that the driver has compiled; others are compiled here where they are needed."""
        if isinstance(self._programs, Programs):
            self._programs = Programs(programs)

    def settle(self, modules: Sequence[str], digests: Mapping[str, str]) -> Settled:
        """Answers once Ray has given the trainer its resources and its process is up.

        From here on a SIGTERM, which a machine sends before it is taken away, makes the trainer hand back its pack.

        Args:
            modules: Whose code the driver compares with its own.
            digests: By the sha256 of a module's text, the digests that the driver knows.
        """
        before = signal.getsignal(signal.SIGTERM)

        def leave(number: int, frame: FrameType | None) -> None:
            self.leave()
            # With nothing to hand back, Ray's own handler ends the process.
            if not self.has_pack and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, leave)
        node = str(ray.get_runtime_context().get_node_id())
        code = digests_here(modules, digests)
        there = _versions_here(self._run.engine)
        return Settled(node, platform.node(), self.accelerator, there, code, self.machine)


def _versions_here(engine: Engine) -> Mapping[str, str]:
    """The versions on this machine, with what hinders the engine in place of the engine's own."""
    try:
        return versions(engine)
    except UserError as error:
        return {**versions(), "engine": str(error)}
