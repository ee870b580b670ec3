"""Decides which trainers of a Ray pool start, train on and end, from the reports so far. Plain state in, actions out:
no Ray, no clock."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    Hardware,
    PackOrder,
    Probed,
    Progress,
    Raised,
    Report,
    TrainerLost,
)
from attnsweep.orchestrator.training.nodes import Node, NodeRecord, TrainerShare, Wanted, allot

_UNKNOWN = Hardware("", "")


@dataclass
class Trainer:
    """One trainer, from its request to its end.

    Attributes:
        node: The node on which the trainer is or must be; `None` while Ray has not chosen one yet.
        is_leaving: Whether the trainer ends as soon as it has handed back its pack.
    """

    share: TrainerShare
    node: str | None
    hardware: Hardware = _UNKNOWN
    order: PackOrder | None = None
    is_up: bool = False
    is_leaving: bool = False


class Action(NamedTuple):
    """What the pool should do with a trainer."""

    what: Literal["start", "go on", "hand back", "end"]
    number: int


class PoolPlan:
    """Decides which trainers start, train on, hand back and end.

    Args:
        n_nodes: Number of nodes that must be up before the first trainer starts.

    Attributes:
        n_awaited: Number of nodes that must be up before any trainer starts; 0 once they have been.
        is_closing: Whether all packs are being handed back, so no trainer starts any more.
    """

    def __init__(self, wanted: Wanted, n_nodes: int = 0) -> None:
        self.trainers: dict[int, Trainer] = {}
        self.nodes: Mapping[str, Node] = {}
        self.record = NodeRecord()
        self.n_awaited = n_nodes
        self.is_closing = False
        self._wanted = wanted
        self._n_started = 0
        self._idle: list[int] = []
        self._at_probe: dict[str, int] = {}

    @property
    def n_trainers(self) -> int:
        return sum(trainer.node is not None for trainer in self.trainers.values()) or max(len(self.trainers), 1)

    @property
    def n_placed(self) -> int:
        return sum(trainer.is_up for trainer in self.trainers.values())

    @property
    def has_idle(self) -> bool:
        return bool(self._idle)

    @property
    def idle(self) -> list[Hardware]:
        return [self.trainers[number].hardware for number in self._idle]

    @property
    def machines(self) -> frozenset[str]:
        return frozenset(trainer.hardware.machine for trainer in self.trainers.values() if trainer.is_up)

    @property
    def running(self) -> list[PackOrder]:
        return [trainer.order for trainer in self.trainers.values() if trainer.order is not None]

    @property
    def is_training(self) -> bool:
        return len(self.running) > len(self._at_probe)

    def see(self, nodes: Iterable[Node]) -> bool:
        self.nodes = {node.id: node for node in nodes}
        self.record.seen(self.nodes)
        if len(self.nodes) >= self.n_awaited:
            self.n_awaited = 0
        return not self.n_awaited and not self.is_closing

    def follow(self) -> list[Action]:
        """Starts trainers where there is room, and ends those without. One that is training first hands back.

        Raises:
            PoolError: If no node can train.
        """
        shares = self._allotted()
        actions: list[Action] = []
        # Running trainers come before those that wait for a node, so that the running ones are kept if there are too
        # many trainers.
        for number, trainer in sorted(self.trainers.items(), key=lambda item: not item[1].is_up):
            places = shares.get(trainer.node, Counter())
            if trainer.is_leaving:
                continue
            if places[trainer.share] > 0:
                places[trainer.share] -= 1
            elif trainer.order is not None:
                trainer.is_leaving = True
            else:
                actions.append(self._end(number))
        missing = [(share, node_id) for node_id, places in shares.items() for share in places.elements()]
        return actions + [self._start(share, node_id) for share, node_id in missing]

    def _allotted(self) -> dict[str | None, Counter[TrainerShare]]:
        """Those that fit on no node yet are under `None`."""
        usable = [node for node in self.nodes.values() if node.id not in self.record.refused]
        staying = [trainer for trainer in self.trainers.values() if not trainer.is_leaving]
        n_up_by_node = Counter(trainer.node for trainer in staying if trainer.node is not None)
        allotment = allot(usable, self._wanted, n_up_by_node)
        limits = self.record.limits
        shares: dict[str | None, Counter[TrainerShare]] = {
            node_id: Counter(lot[: limits.get(node_id, len(lot))]) for node_id, lot in allotment.by_node.items()
        }
        if self.record.refused and not any(shares.values()):
            raise PoolError(f"no node of the cluster can train: {self.record.in_words()}")
        self.record.wait_for(len(allotment.pending))
        return {**shares, None: Counter(allotment.pending)}

    def settled(self, number: int, node_id: str, host: str, hardware: Hardware, changes: Sequence[str]) -> list[Action]:
        if changes:
            self.record.give_up(node_id, host, f"its versions differ from the driver's: {'; '.join(changes)}")
            return [self._end(number)]
        trainer = self.trainers[number]
        trainer.node, trainer.hardware, trainer.is_up = node_id, hardware, True
        self.record.started(node_id)
        self._idle.append(number)
        return []

    def not_started(self, number: int, why: str, *, has_lost_its_node: bool) -> list[Action]:
        trainer, end = self.trainers[number], self._end(number)
        node = self.nodes.get(trainer.node) if trainer.node is not None else self._node_named_in(why)
        if node is not None and not has_lost_its_node:
            n_up = sum(other.is_up and other.node == node.id for other in self.trainers.values())
            self.record.failed(node, n_up, why)
        return [end]

    def _node_named_in(self, text: str) -> Node | None:
        named = (node for node in self.nodes.values() if re.search(rf"ip[=:] ?{re.escape(node.address)}\b", text))
        return next(named, None)

    def hand_out(self, order: PackOrder) -> int:
        """Takes the trainer that has been idle longest, if possible on the machine that the order names."""
        fitting = (number for number in self._idle if order.machine in (None, self.trainers[number].hardware.machine))
        number = next(fitting, self._idle[0])
        self._idle.remove(number)
        self.trainers[number].order = order
        return number

    def answered(self, pack: str) -> int:
        return self._at_probe.pop(pack)

    def reported(self, number: int, report: Report) -> tuple[Report | TrainerLost, list[Action]]:
        trainer = self.trainers[number]
        assert trainer.order is not None
        is_leaving = self.is_closing or trainer.is_leaving
        if isinstance(report, Probed) and not is_leaving:
            self._at_probe[trainer.order.pack] = number
            return report, []
        if isinstance(report, Probed):
            # This trainer has to end. It hands its trainings over at once, and does not wait until the driver has
            # decided, from this measurement, which of them to prune. The trainer that continues them reports the
            # measurement again, so here only their progress is reported.
            report = Progress(report.step, report.checkpoint, report.n_running, report.where, report.metric)
        if isinstance(report, Progress):
            return report, [Action("hand back" if is_leaving else "go on", number)]
        trainer.order = None
        match report:
            case Raised(cannot_compile=True):
                if trainer.node is not None:
                    self.record.give_up(trainer.node, report.host, report.error)
                return TrainerLost(report.error, out_of_memory=False), [self._end(number)]
            case HandedBack() if not self.is_closing:
                return report, [self._end(number)]
            case Raised(has_lost_its_gpu=True):
                return report, [self._end(number)]
            case _ if trainer.is_leaving:
                return report, [self._end(number)]
        self._idle.append(number)
        return report, []

    def lost(self, number: int) -> list[Action]:
        """The next `follow` replaces it if it is still wanted."""
        return [self._end(number)]

    def forget(self) -> None:
        """After all trainers have ended."""
        self.trainers.clear()
        self._idle.clear()
        self._at_probe.clear()

    def _start(self, share: TrainerShare, node_id: str | None) -> Action:
        self._n_started += 1
        self.trainers[self._n_started] = Trainer(share, node_id)
        return Action("start", self._n_started)

    def _end(self, number: int) -> Action:
        del self.trainers[number]
        if number in self._idle:
            self._idle.remove(number)
        return Action("end", number)
