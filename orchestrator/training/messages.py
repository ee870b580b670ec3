"""What the main loop and the trainers tell each other about packs. Imports neither torch nor ray."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from attnsweep.orchestrator.storage.environment import Engine
    from attnsweep.orchestrator.training.tasks import Shape, Task

CHECKPOINT_SECONDS = 120.0
"""Between two checkpoints of a pack: a lost machine costs hardly more work than this."""


@dataclass(frozen=True)
class RunContext:
    """What a run gives to its trainers.

    Attributes:
        files: Absolute paths on the driver's machine, which trainings read.
        curves_every: k, where curves keep the first, every k-th and the last probe.
    """

    sweep: str
    environment: str | None = None
    files: tuple[str, ...] = ()
    engine: "Engine" = "eager"
    curves_every: int = 1


@dataclass(frozen=True)
class PackOrder:
    """An order to train a pack, from the start or from a checkpoint.

    Attributes:
        checkpoint: `None` for the start; empty once a trainer has it.
        waits: Whether the pack waits at each probe until the driver says which trainings are pruned.
        as_in: On a GPU, the size of the earlier pack whose results must be reproduced to the last bit; `None` for any
            size.
        machine: The type of machine that should train the pack; `None` for any.
        environment: The id that the rows name; `None` for the run's.
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
        return self.tasks[0].shape

    def without_state(self) -> "PackOrder":
        """To keep once a trainer has the checkpoint, which may take gigabytes."""
        return self if self.checkpoint is None else replace(self, checkpoint=b"")


@dataclass(frozen=True)
class StillTraining:
    """A pack that is still training.

    Attributes:
        checkpoint: The pack's state, if one is due.
        n_running: Trainings that go on.
        where: The host and the device.
        metric: The workload's first metric at the last probe: its name, and its mean over the pack.
    """

    step: int
    checkpoint: bytes | None = None
    n_running: int | None = None
    where: str = ""
    metric: tuple[str, float] | None = None


Standing: TypeAlias = tuple[str, bool, float | None]
"""The outcome of a training, whether it is stuck, and its `eval_loss`; `None` if that is not finite."""


@dataclass(frozen=True)
class Probed:
    """A pack that has stopped at a probe and waits until the driver has said which of its trainings are pruned.

    Attributes:
        reached: Of each training, how it would end at this probe, or how it ended before.
        running: The lanes that have not ended.
    """

    step: int
    reached: Sequence[Standing]
    running: Sequence[int]
    checkpoint: bytes | None = None
    where: str = ""
    metric: tuple[str, float] | None = None

    @property
    def n_running(self) -> int:
        return len(self.running)


@dataclass(frozen=True)
class HandedBack:
    """A trainer has stopped; `checkpoint` is `None` if the pack had barely begun."""

    checkpoint: bytes | None


@dataclass(frozen=True)
class Rows:
    """Rows by table; `heads` is `None` without any."""

    trainings: "pa.Table"
    curves: "pa.Table"
    heads: "pa.Table | None"


@dataclass(frozen=True)
class Trained:
    """A pack that has reached its end; `lane_steps` are summed over trainings."""

    rows: Rows
    lane_steps: int
    seconds: float


@dataclass(frozen=True)
class Raised:
    """A pack that raised: one of its trainings did, memory ran out, or the machine cannot compile."""

    error: str
    out_of_memory: bool
    device: str
    host: str
    cannot_compile: bool = False

    @property
    def has_lost_its_gpu(self) -> bool:
        """Whether the process cannot use its GPU any more."""
        # Not "CUDA out of memory", after which the context still works.
        return re.search("AcceleratorError|CUDA error|HIP error", self.error) is not None


@dataclass(frozen=True)
class TrainerLost:
    """A trainer has died, alone or with its machine. Its pack needs another."""

    reason: str
    out_of_memory: bool


Report: TypeAlias = StillTraining | Probed | HandedBack | Trained | Raised
Reports: TypeAlias = list[tuple[PackOrder, Report | TrainerLost]]


class Pool(Protocol):
    """The trainers that train one sweep, each one pack at a time.

    Implementers: an order comes back any number of times as `StillTraining`, or as `Probed` if it `waits`, then only
    once as `Trained`, `Raised`, `HandedBack` or `TrainerLost`, after which it is no longer in `running`. How a training
    ends depends on its task, the type of machine and where it is pruned, no more. An exception of a training becomes a
    report. A pool itself raises only KeyboardInterrupt, and PoolError if it cannot continue.
    """

    @property
    def n_trainers(self) -> int:
        """Packs that can train at the same time."""

    @property
    def waiting_for(self) -> str:
        """What must happen before training can begin, in words; empty once it can."""

    @property
    def idle(self) -> Sequence[str]:
        """The machines of idle trainers, by type: GPU or processor. The first gets the next pack, unless that names
        another."""

    @property
    def machines(self) -> frozenset[str]:
        """The types of machine on which a trainer is up."""

    @property
    def running(self) -> list[PackOrder]: ...

    def notices(self) -> list[str]:
        """Messages for the user since the last call, one line each."""

    def train(self, order: PackOrder) -> None:
        """Gives a pack to an idle trainer, preferably on the machine that it names. Reports contain the order
        `without_state`."""

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        """Continues a pack that waits at a probe. Ends the lanes in `pruned`."""

    def reports(self, timeout: float) -> Reports:
        """Waits about `timeout` seconds. A pack reported as `StillTraining` goes on, as `Probed` waits for `answer`."""

    def hand_back(self, seconds: float) -> Reports:
        """Asks all trainers to stop and hand back. Reports later than `seconds` are ignored."""

    def close(self) -> None:
        """Ends all trainers. What they have not handed back is lost. Idempotent."""
