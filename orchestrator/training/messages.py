"""The interface between the sweep's main loop and its trainers, and the messages that they exchange about packs
(trainings in one batched program).

The module imports neither torch nor ray.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from attnsweep.orchestrator.storage.environment import Engine
    from attnsweep.orchestrator.training.tasks import Shape, Task
    from attnsweep.workloads.engine.device_memory import PackMemory

CHECKPOINT_SECONDS = 120.0
"""Seconds between two checkpoints of a pack: a lost machine costs at most this much work."""


@dataclass(frozen=True)
class RunContext:
    """What a run gives to its trainers: the values that all its ledger rows have in common, and the files that its
    trainings read.

    Attributes:
        sweep: The sweep's name.
        environment: The id of the environment that trains the run's trainings.
        files: Absolute paths on the driver's machine, and names of the bases (weights of earlier trainings) that
            trainings start from.
        engine: The engine that takes the steps of the trainings.
        curves_every: k: of each curve the first, every k-th and the last probe (step of measurement) are kept.
    """

    sweep: str
    environment: str | None = None
    files: tuple[str, ...] = ()
    engine: "Engine" = "vmapped"
    curves_every: int = 1


@dataclass(frozen=True)
class PackOrder:
    """An order to a trainer to train a pack (trainings in one batched program), from the start or from a checkpoint.

    Attributes:
        pack: The pack's name.
        tasks: The pack's trainings, one per lane.
        checkpoint: The pack's state; `None` for its start. Empty once a trainer has it.
        waits: Whether the pack waits at each probe (step of measurement) until the driver says which trainings are
            pruned.
        as_in: On a GPU, the size of the earlier pack whose results must be reproduced to the last bit; `None` for any
            size.
        machine: The type of machine that should train the pack; `None` for any.
        environment: The id of the environment that the pack's rows name; `None` for the run's.
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
        """The values of the static parameters, such as tensor sizes, which must be equal in all trainings of one
        batched program."""
        return self.tasks[0].shape

    def without_state(self) -> "PackOrder":
        """Returns a copy of this order, which tells a trainer to train a pack of trainings. The copy lacks the
        checkpoint from which the pack continues.

        The copy is kept in place of the order once a trainer has received the checkpoint, which may take gigabytes.
        """
        return self if self.checkpoint is None else replace(self, checkpoint=b"")


@dataclass(frozen=True)
class Progress:
    """A trainer's report on a pack (trainings in one batched program) that is still training.

    Attributes:
        step: The step that the pack has reached.
        checkpoint: The pack's state, at intervals.
        n_running: Number of trainings in the pack that have not ended; `None` if unknown.
        where: The host and the device that train the pack.
        metric: The workload's first metric at the last probe: its name, and its mean over the pack.
        probe_share: The share of the pack's time that probes take, if it goes on as so far.
    """

    step: int
    checkpoint: bytes | None = None
    n_running: int | None = None
    where: str = ""
    metric: tuple[str, float] | None = None
    probe_share: float | None = None


Standing: TypeAlias = tuple[str, bool, float | None]
"""The outcome of a training, whether it is stuck, and its `eval_loss`; `None` if that is not finite."""


@dataclass(frozen=True)
class Probed:
    """A trainer's report that a pack of trainings (one batched program) has stopped at a probe, which is a step at
    which the trainings are measured. The pack waits until the driver has said which of its trainings are pruned.

    Attributes:
        step: The step of the probe.
        reached: For each training, the result that it would have if it ended at this probe, or the result with which it
            ended earlier.
        running: The positions in the pack of the trainings that have not ended.
        checkpoint: The pack's state, at intervals.
        where, metric: As in `Progress`.
    """

    step: int
    reached: Sequence[Standing]
    running: Sequence[int]
    checkpoint: bytes | None = None
    where: str = ""
    metric: tuple[str, float] | None = None

    @property
    def n_running(self) -> int:
        """How many trainings of the reported batched program have not ended."""
        return len(self.running)


@dataclass(frozen=True)
class HandedBack:
    """A trainer's report that it has stopped training a pack of trainings. It contains the pack's state, unless the
    pack had barely begun."""

    checkpoint: bytes | None


@dataclass(frozen=True)
class Rows:
    """Rows of trainings for the ledger, by table: `trainings`, `curves` and `heads` (`None` for a workload without
    attention heads).
    """

    trainings: "pa.Table"
    curves: "pa.Table"
    heads: "pa.Table | None"


@dataclass(frozen=True)
class Trained:
    """A trainer's report on a pack of trainings that has reached its end: ledger rows, steps summed over trainings,
    seconds, and use of GPU memory."""

    rows: Rows
    lane_steps: int
    seconds: float
    memory: "PackMemory | None" = None


@dataclass(frozen=True)
class Raised:
    """A trainer's report on a pack of trainings that raised an error. One of the trainings may be the cause, or memory
    ran out, or the machine cannot compile."""

    error: str
    out_of_memory: bool
    device: str
    host: str
    cannot_compile: bool = False

    @property
    def has_lost_its_gpu(self) -> bool:
        """Whether the trainer's process cannot use its GPU any more, because the GPU context is broken."""
        # If the GPU context is broken, PyTorch's error text contains "AcceleratorError", "CUDA error" or "HIP error".
        # "CUDA out of memory" does not match, because the context still works.
        return re.search("AcceleratorError|CUDA error|HIP error", self.error) is not None


@dataclass(frozen=True)
class TrainerLost:
    """The report that a trainer has died, alone or with its machine. Its pack of trainings needs another trainer.

    Attributes:
        reason: Why it died, in the pool's words.
        out_of_memory: Whether it was killed because its machine ran out of memory.
    """

    reason: str
    out_of_memory: bool


Report: TypeAlias = Progress | Probed | HandedBack | Trained | Raised
"""A trainer's answer."""
Reports: TypeAlias = list[tuple[PackOrder, Report | TrainerLost]]
"""The reports that a pool has received, in order."""


class Hardware(NamedTuple):
    """The hardware that a trainer uses: the model of its GPU (or `cpu`), and the type of machine."""

    accelerator: str
    machine: str


class Pool(Protocol):
    """Interface for a pool: the trainers that train one sweep. Each trainer trains one pack (trainings in one batched
    program) at a time.

    For implementers: an order comes back any number of times as `Progress`, or as `Probed` if it `waits`, then exactly
    once as `Trained`, `Raised`, `HandedBack` or `TrainerLost`, after which it is no longer in `running`. The rows of a
    training depend on its task alone, and on where it is pruned. An exception of a training becomes a report. A pool
    itself raises only KeyboardInterrupt, and PoolError if it cannot continue.
    """

    @property
    def n_trainers(self) -> int:
        """The number of packs (trainings in one batched program) that can train at the same time."""

    @property
    def waiting_for(self) -> str:
        """What has to happen before training can begin, in words; empty once a trainer can train."""

    @property
    def has_idle(self) -> bool:
        """Whether a trainer is idle and can get a pack of trainings."""

    @property
    def idle(self) -> "Sequence[Hardware]":
        """The hardware of each trainer that has no work. The first of these trainers gets the next pack of trainings,
        unless the pack must be trained on another type of machine."""

    @property
    def machines(self) -> frozenset[str]:
        """The types of machine on which a trainer of this pool is up."""

    @property
    def running(self) -> list[PackOrder]:
        """The orders that are being carried out now, each to train one pack (trainings in one batched program)."""

    def notices(self) -> list[str]:
        """Returns new messages for the user about the trainers, one line each: those since the last call."""

    def train(self, order: PackOrder) -> None:
        """Gives a pack (trainings in one batched program) to an idle trainer, preferably to one on the type of machine
        that `order` names.

        The reports about the pack contain the order without the checkpoint that it continues from.
        """

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        """Continues a pack of trainings that waits at a probe (step of measurement). Ends the trainings whose positions
        in the pack are in `pruned`."""

    def reports(self, timeout: float) -> Reports:
        """Returns the trainers' reports that arrive within about `timeout` seconds.

        A pack that was reported as `Progress` trains on without an answer; a pack that was reported as `Probed` waits
        for `answer`.
        """

    def hand_back(self, seconds: float) -> Reports:
        """Asks all trainers to stop and to hand back their packs of trainings. Returns the reports that arrive within
        `seconds`; later ones are ignored."""

    def close(self) -> None:
        """Ends all trainers at once. What they have not handed back is lost. Idempotent."""
