"""The contract between the sweep loop and whatever trains its packs: a pool, and the messages to and from it.

Light to import: no torch, no ray.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from attnsweep.orchestrator.storage.environment import Engine
    from attnsweep.orchestrator.training.tasks import Shape, Task
    from attnsweep.workloads.engine.device_memory import PackMemory

CHECKPOINT_SECONDS = 120.0
"""Seconds between two checkpoints of a pack: a lost machine costs at most this much work."""


@dataclass(frozen=True)
class RunContext:
    """The values that all rows of a run share, and the files that its trainings read.

    Attributes:
        sweep: The sweep's name.
        environment: The id of the environment that trains them.
        files: Absolute paths on the driver's machine, and names of the bases that the trainings start from.
        engine: What takes the steps of its trainings.
        curves_every: Of the probes of a curve one in so many is kept, with the first and the last.
    """

    sweep: str
    environment: str | None = None
    files: tuple[str, ...] = ()
    engine: "Engine" = "vmapped"
    curves_every: int = 1


@dataclass(frozen=True)
class PackOrder:
    """A pack to train, from its start or from a checkpoint.

    Attributes:
        pack: Its name.
        tasks: Its trainings.
        checkpoint: Its state; `None` for its start. Empty once a trainer has it.
        waits: Whether it waits at each probe to be told which of its trainings are pruned.
        as_in: The size of the pack that its trainings are to be equal to, to the last bit, on a GPU; `None` for any.
        machine: The type of machine that should train it; `None` for any.
        environment: The id of the environment that its rows name; `None` for the run's.
    """

    pack: str
    tasks: "Sequence[Task]"
    checkpoint: bytes | None = None
    waits: bool = False
    as_in: int | None = None
    machine: str | None = None
    environment: str | None = None

    @property
    def shape(self) -> "Shape":
        """The shape of its trainings."""
        return self.tasks[0].shape

    def without_state(self) -> "PackOrder":
        """The same order, once a trainer has its state, which can have gigabytes."""
        return self if self.checkpoint is None else replace(self, checkpoint=b"")


@dataclass(frozen=True)
class Progress:
    """A pack that is still training.

    Attributes:
        step: The step it has reached.
        checkpoint: At intervals, its state.
        n_running: Its trainings that have not ended; `None` if nothing is known.
        where: The host and the device that train it.
    """

    step: int
    checkpoint: bytes | None = None
    n_running: int | None = None
    where: str = ""


Standing: TypeAlias = tuple[str, bool, float | None]
"""The outcome of a training, whether it is stuck, and its `eval_loss`; `None` if that is not finite."""


@dataclass(frozen=True)
class Probed:
    """A pack that waits at a probe to be told which of its trainings are pruned.

    Attributes:
        step: The step of the probe.
        reached: How each training would have ended here, or has ended before.
        running: The positions in the pack of those that have not ended.
        checkpoint: At intervals, its state.
        where: As of `Progress`.
    """

    step: int
    reached: Sequence[Standing]
    running: Sequence[int]
    checkpoint: bytes | None = None
    where: str = ""

    @property
    def n_running(self) -> int:
        """How many of its trainings have not ended."""
        return len(self.running)


@dataclass(frozen=True)
class HandedBack:
    """A pack that this trainer has stopped training, with its state unless it had barely begun."""

    checkpoint: bytes | None


@dataclass(frozen=True)
class Rows:
    """The rows of some trainings, by table; `heads` is `None` where they have none."""

    trainings: "pa.Table"
    curves: "pa.Table"
    heads: "pa.Table | None"


@dataclass(frozen=True)
class Trained:
    """A finished pack: its rows, the speed it ran at, and what it took of a GPU's memory."""

    rows: Rows
    lane_steps: int
    seconds: float
    memory: "PackMemory | None" = None


@dataclass(frozen=True)
class Raised:
    """A pack whose program raised: one of its lanes is at fault, memory ran out, or the machine cannot compile it."""

    error: str
    out_of_memory: bool
    device: str
    host: str
    cannot_compile: bool = False

    @property
    def has_lost_its_gpu(self) -> bool:
        """Whether the GPU context of the trainer's process is broken: every later call raises this error again."""
        # Torch's words for CUDA and ROCm; running out of memory is "CUDA out of memory", which this does not match.
        return re.search("AcceleratorError|CUDA error|HIP error", self.error) is not None


@dataclass(frozen=True)
class TrainerLost:
    """The trainer died, with its machine or alone; its pack has to be trained again.

    Attributes:
        reason: In the pool's words.
        out_of_memory: Whether it was killed because its machine ran out of memory.
    """

    reason: str
    out_of_memory: bool


Report: TypeAlias = Progress | Probed | HandedBack | Trained | Raised
"""A trainer's answer."""
Reports: TypeAlias = list[tuple[PackOrder, Report | TrainerLost]]
"""The reports that a pool has received, in order."""


class Pool(Protocol):
    """Trainers of one sweep, each with one pack at a time.

    Implementers: an order comes back any number of times as `Progress`, or as `Probed` if it `waits`, then exactly once
    as `Trained`, `Raised`, `HandedBack` or `TrainerLost`, after which it is no longer in `running`. The rows of a
    training depend on its task alone, and on where it is pruned. An exception of a training becomes a report. A pool
    itself raises only KeyboardInterrupt, and PoolError if it cannot continue.
    """

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once."""

    @property
    def waiting_for(self) -> str:
        """What has to come before any pack can train, in words; empty once one can."""

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""

    @property
    def accelerator(self) -> str:
        """The type of the idle trainer that gets the next pack: the model of its GPU, or `cpu`."""

    @property
    def machine(self) -> str:
        """The type of machine of the idle trainer that gets the next pack."""

    @property
    def machines(self) -> frozenset[str]:
        """The types of machine of all trainers that are up."""

    @property
    def idle_machines(self) -> frozenset[str]:
        """Those of trainers that are idle."""

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""

    def notices(self) -> list[str]:
        """What the user should know of the trainers since the last call."""

    def train(self, order: PackOrder) -> None:
        """Hands a pack to an idle trainer: one on the type of machine that the pack names, if there is one.

        It comes back without the state that it continues from.
        """

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        """Lets a pack that was reported as `Probed` train on, without the trainings at these positions."""

    def reports(self, timeout: float) -> Reports:
        """The reports received within about `timeout` seconds. Packs that only made progress continue to train; those
        reported as `Probed` wait for `answer`."""

    def hand_back(self, seconds: float) -> Reports:
        """Asks all trainers for their packs; returns the reports received in time, and leaves the other packs."""

    def close(self) -> None:
        """Ends all trainers at once and drops their packs. Idempotent."""
