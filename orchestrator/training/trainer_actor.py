"""The trainer as a Ray actor: how it receives its workload, and what it reports about its machine."""

import io
import platform
import signal
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import ray

from attnsweep.orchestrator.storage.environment import versions
from attnsweep.orchestrator.training.messages import Report, RunContext
from attnsweep.orchestrator.training.trainer import Trainer, machine_of
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import given_file, take_over
from attnsweep.workloads.user_code import UserCode, user_code_of


class Shipment:
    """A workload as the driver sends it to trainers on other machines.

    The code is sent as text, and the receiver imports it under the same module name. So objects that are pickled later
    (parameters, errors) can name their class, as for an installed workload.

    Args:
        files: Files that the trainings read, as `given_file` finds them: absolute paths, and names of bases.
    """

    def __init__(self, workload: Workload[Any], files: Sequence[str] = ()) -> None:
        self.workload = workload
        self._files = files

    def __reduce__(self) -> tuple[object, ...]:
        files = {
            path: given_file(Path(path), "files", "a file that trainings read").read_bytes() for path in self._files
        }
        # The user's code must be imported before the workload is unpickled. Pickle restores the state of an object
        # last, so the workload is returned as the state, the third of the returned values.
        return _unloaded, (user_code_of(self.workload), files), self.workload

    def __setstate__(self, workload: Workload[Any]) -> None:
        self.workload = workload


def _unloaded(code: UserCode | None, files: Mapping[str, bytes]) -> Shipment:
    if code is not None:
        code.offer()
    take_over(files)
    return Shipment.__new__(Shipment)


class Settled(NamedTuple):
    """What a trainer that has started reports; `node` is Ray's id."""

    node: str
    host: str
    machine: str
    versions: Mapping[str, str]


class TrainerActor(Trainer):
    def __init__(self, shipment: Shipment, run: RunContext, device: str, checkpoint_seconds: float) -> None:
        super().__init__(shipment.workload, run, device, checkpoint_seconds)

    def do(self, work: Literal["start", "proceed", "hand_back"], *given: Any) -> tuple[Report, str]:
        """Returns the report, and what the user's code printed meanwhile."""
        with redirect_stdout(io.StringIO()) as printed:
            report: Report = getattr(self, work)(*given)
        return report, printed.getvalue()

    def settle(self) -> Settled:
        """Waits until Ray has given the trainer its resources.

        From now on a SIGTERM, which precedes the removal of a machine, makes the trainer hand back its pack.
        """
        before = signal.getsignal(signal.SIGTERM)

        def leave(number: int, frame: FrameType | None) -> None:
            self._is_leaving = True
            # A trainer with a pack hands it back first. A trainer without one ends at once, through the signal handler
            # that Ray had set before.
            if self._order is None and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, leave)
        node = str(ray.get_runtime_context().get_node_id())
        try:
            versions_here = versions(self._run.engine)
        except UserError as error:
            # The engine cannot run on this machine. The driver gets the reason in place of the engine's version.
            versions_here = {**versions(), "engine": str(error)}
        return Settled(node, platform.node(), machine_of(self._device), versions_here)
