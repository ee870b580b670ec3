"""What the sweep loop and its trainers say to each other. Light to import: no torch, no ray."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

    from attnsweep.orchestrator.training.identity import Task

CHECKPOINT_SECONDS = 120.0
"""Between two checkpoints of a pack: at most so much is lost with a machine."""


@dataclass(frozen=True)
class PackOrder:
    """A pack to train, from its start or from a checkpoint."""

    pack: str
    tasks: "Sequence[Task]"
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class Progress:
    """A pack that trains on: the step it has reached; now and then its state."""

    step: int
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class HandedBack:
    """A pack that this trainer trains no more; its state, where it has come far enough to be worth keeping."""

    checkpoint: bytes | None


@dataclass(frozen=True)
class Rows:
    """The rows of some trainings, by table; `heads` is `None` where they have none."""

    trainings: "pa.Table"
    curves: "pa.Table"
    heads: "pa.Table | None"


@dataclass(frozen=True)
class Trained(Rows):
    """A pack that is done: its rows and the speed it ran at."""

    lane_steps: int
    seconds: float


@dataclass(frozen=True)
class Raised:
    """A pack whose program raised, for one of its lanes or for want of memory."""

    error: str
    out_of_memory: bool
    device: str
    host: str

    @property
    def has_lost_its_gpu(self) -> bool:
        """Whether the trainer's process can use its GPU no more: every later call raises this error again."""
        # Torch's words for CUDA and ROCm. Out of memory is none of them: torch says "CUDA out of memory".
        return re.search("AcceleratorError|CUDA error|HIP error", self.error) is not None


@dataclass(frozen=True)
class TrainerLost:
    """The trainer died, with its machine or by itself; the pack has to be trained again.

    Attributes:
        reason: In the pool's words.
        out_of_memory: Whether it was ended because its machine ran out of memory.
    """

    reason: str
    out_of_memory: bool


Report: TypeAlias = Progress | HandedBack | Trained | Raised
"""A trainer's answer."""
Reports: TypeAlias = list[tuple[PackOrder, Report | TrainerLost]]
"""What a pool has heard, in the order in which it came."""
