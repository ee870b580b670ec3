"""Decides which trainers of a Ray pool start, train on and end, from the reports so far. Plain state in, actions out:
no Ray, no clock."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Probed,
    Raised,
    Report,
    StillTraining,
    TrainerLost,
)
from attnsweep.orchestrator.training.resources import Device, TrainerCount

MAX_FAILED_STARTS = 3
"""So many failures to start or compile, without a report between them, end the sweep."""
_MAX_CHARACTERS = 300
_RAISED = re.compile(
    r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*$|^The actor is dead because .*?(?=\. |$)", re.M
)


class TrainerShare(NamedTuple):
    """What Ray gives to each trainer. Trainers with a fraction of a GPU share it."""

    device: str
    num_cpus: float
    num_gpus: float

    @classmethod
    def of(cls, n_gpus: float, wanted: TrainerCount, device: Device) -> "TrainerShare":
        """A single number `wanted` above `n_gpus` makes trainers share GPUs; a range does not."""
        if device == "cpu" or (device == "auto" and n_gpus < 1):
            return cls("cpu", 1.0, 0.0)
        n_sharing = ceil(wanted / n_gpus) if isinstance(wanted, int) and n_gpus >= 1 else 1
        return cls("cuda", 0.0, 1.0 / n_sharing)

    def n_places(self, n_cpus: float, n_gpus: float) -> int:
        return int(n_cpus) if self.device == "cpu" else round(n_gpus // 1 / self.num_gpus)


@dataclass
class Trainer:
    """One trainer, from its request to its end. Its node's id, host and type of machine are known once it is up."""

    node: str = ""
    host: str = ""
    machine: str = ""
    order: PackOrder | None = None

    @property
    def is_up(self) -> bool:
        return bool(self.machine)


class Action(NamedTuple):
    what: Literal["start", "go on", "hand back", "end"]
    number: int


class PoolPlan:
    """`wanted`: of two numbers the larger one is requested, and the first pack waits for the smaller.

    Attributes:
        n_awaited: Trainers that must be up before the first pack is handed out; 0 once they have been.
        is_closing: Whether all packs are being handed back, so that no trainer starts any more.
    """

    def __init__(self, wanted: TrainerCount = None) -> None:
        self.trainers: dict[int, Trainer] = {}
        self.n_awaited = wanted[0] if isinstance(wanted, tuple) else 1
        self.is_closing = False
        self._max_trainers = wanted[1] if isinstance(wanted, tuple) else wanted
        self._n_places = self._n_started = self._n_failed = 0
        self._idle: list[int] = []
        self._at_probe: dict[str, int] = {}  # the trainer of each pack that waits for an answer
        self._notices: list[str] = []

    @property
    def n_trainers(self) -> int:
        return max(min(len(self.trainers), self._n_places), self.n_up, 1)

    @property
    def n_up(self) -> int:
        return sum(trainer.is_up for trainer in self.trainers.values())

    @property
    def idle(self) -> list[str]:
        return [] if self.n_awaited else [self.trainers[number].machine for number in self._idle]

    @property
    def machines(self) -> frozenset[str]:
        return frozenset(trainer.machine for trainer in self.trainers.values() if trainer.is_up)

    @property
    def running(self) -> list[PackOrder]:
        return [trainer.order for trainer in self.trainers.values() if trainer.order is not None]

    @property
    def is_training(self) -> bool:
        return len(self.running) > len(self._at_probe)

    def notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def follow(self, nodes: Collection[str], n_places: int) -> list[Action]:
        """Requests the trainers that are missing on these nodes, which have `n_places`, takes back requests beyond what
        is wanted, and ends idle trainers whose node is gone: they have no call that would fail."""
        gone = [self._end(number) for number in [*self._idle] if self.trainers[number].node not in nodes]
        self._n_places = n_places
        n_wanted = max(n_places, 1) if self._max_trainers is None else self._max_trainers
        n_missing = 0 if self.is_closing else n_wanted - len(self.trainers)
        waiting = [number for number, trainer in self.trainers.items() if not trainer.is_up]
        surplus = [self._end(number) for number in waiting[: max(-n_missing, 0)]]
        return [*gone, *surplus, *(self._start() for _ in range(n_missing))]

    def settled(self, number: int, node: str, host: str, machine: str, changes: Sequence[str]) -> list[Action]:
        """A trainer is up; `changes`: how its versions differ from the driver's."""
        if changes:
            return self.not_started(
                number, f"the versions of host {host} differ from the driver's: {'; '.join(changes)}"
            )
        self.trainers[number] = Trainer(node, host, machine)
        self._idle.append(number)
        if self.n_up >= self.n_awaited:
            self.n_awaited = 0
        return []

    def not_started(self, number: int, why: str) -> list[Action]:
        """The next `follow` may request another. Raises PoolError at the third without a report between them."""
        self._n_failed += 1
        if self._n_failed >= MAX_FAILED_STARTS:
            raise PoolError(
                f"{self._n_failed} trainers did not start or compile, without a report between them; "
                f"the last: {_cause_of(why)}"
            )
        self._notices.append(f"a trainer did not start: {_cause_of(why)}")
        return [self._end(number)]

    def hand_out(self, order: PackOrder) -> int:
        """Takes the trainer that has been idle longest, if possible on the machine that the order names."""
        fitting = (number for number in self._idle if order.machine in (None, self.trainers[number].machine))
        number = next(fitting, self._idle[0])
        self._idle.remove(number)
        self.trainers[number].order = order
        return number

    def answered(self, pack: str) -> int:
        return self._at_probe.pop(pack)

    def reported(self, number: int, report: Report) -> tuple[Report | TrainerLost, list[Action]]:
        trainer = self.trainers[number]
        assert trainer.order is not None
        if isinstance(report, Raised) and report.cannot_compile:
            return TrainerLost(report.error, out_of_memory=False), self.not_started(number, report.error)
        self._n_failed = 0
        if isinstance(report, Probed) and not self.is_closing:
            self._at_probe[trainer.order.pack] = number
            return report, []
        if isinstance(report, Probed):
            # The pack is handed back undecided: the trainer that continues it reports the probe again.
            report = StillTraining(report.step, report.checkpoint, report.n_running, report.where, report.metric)
        if isinstance(report, StillTraining):
            return report, [Action("hand back" if self.is_closing else "go on", number)]
        trainer.order = None
        is_leaving = isinstance(report, HandedBack) and not self.is_closing
        if is_leaving or (isinstance(report, Raised) and report.has_lost_its_gpu):
            return report, [self._end(number)]
        self._idle.append(number)
        return report, []

    def lost(self, number: int) -> list[Action]:
        """The next `follow` may replace it."""
        where = f" on host {self.trainers[number].host}" if self.trainers[number].is_up else ""
        self._notices.append(f"lost a trainer{where}")
        return [self._end(number)]

    def forget(self) -> None:
        """After all trainers have ended."""
        self.trainers.clear()
        self._idle.clear()
        self._at_probe.clear()

    def _start(self) -> Action:
        self._n_started += 1
        self.trainers[self._n_started] = Trainer()
        return Action("start", self._n_started)

    def _end(self, number: int) -> Action:
        del self.trainers[number]
        if number in self._idle:
            self._idle.remove(number)
        return Action("end", number)


def _cause_of(why: str) -> str:
    """The last error of its traceback, or how its process ended."""
    lines: list[str] = _RAISED.findall(why) or [" ".join(why.split())]
    return lines[-1][:_MAX_CHARACTERS]
