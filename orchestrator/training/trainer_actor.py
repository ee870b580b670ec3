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

    The user's code is sent as text and imported under the same module name, so that parameters and errors that are
    pickled later can name their class, as those of an installed workload.

    Args:
        files: Those of `RunContext`.
    """

    def __init__(self, workload: Workload[Any], files: Sequence[str] = ()) -> None:
        self.workload = workload
        self._files = files

    def __reduce__(self) -> tuple[object, ...]:
        files = {
            path: given_file(Path(path), "files", "a file that trainings read").read_bytes() for path in self._files
        }
        # The user's code must be imported before the workload is unpickled. So the workload is the state, the third
        # value, which pickle restores last.
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

    def do(self, method: Literal["start", "proceed", "hand_back"], *arguments: Any) -> tuple[Report, str]:
        """The report, and what the user's code printed meanwhile."""
        with redirect_stdout(io.StringIO()) as printed:
            report: Report = getattr(self, method)(*arguments)
        return report, printed.getvalue()

    def settle(self) -> Settled:
        """Answers once Ray has given the trainer its resources. From then on a SIGTERM, which precedes the removal of a
        machine, makes it hand back its pack."""
        before = signal.getsignal(signal.SIGTERM)

        def leave(number: int, frame: FrameType | None) -> None:
            self._is_leaving = True
            # Without a pack it ends here, by Ray's own handler; else `proceed` hands the pack back first.
            if self._order is None and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, leave)
        node = str(ray.get_runtime_context().get_node_id())
        try:
            versions_here = versions(self._run.engine)
        except UserError as error:
            # The driver sees why the engine cannot run here, in place of the engine's version.
            versions_here = {**versions(), "engine": str(error)}
        return Settled(node, platform.node(), machine_of(self._device), versions_here)
