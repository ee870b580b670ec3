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
    """What the plan knows about one trainer, from the moment at which it is requested to its end.

    Attributes:
        share: The trainer's resources.
        node: The node on which the trainer is or must be; `None` while Ray has not chosen one yet.
        hardware: The trainer's hardware, known once the trainer is up.
        order: The pack that the trainer has, in training or waiting at a probe.
        is_up: Whether the trainer has started and reported its node.
        is_leaving: Whether the trainer ends as soon as it has handed back its pack.
    """

    share: TrainerShare
    node: str | None
    hardware: Hardware = _UNKNOWN
    order: PackOrder | None = None
    is_up: bool = False
    is_leaving: bool = False


class Action(NamedTuple):
    """Something that the pool should do with one trainer, given by its number: start it, let it train on, or end it."""

    what: Literal["start", "go on", "hand back", "end"]
    number: int


class PoolPlan:
    """Decides which trainers of a sweep start, train on, hand back their packs (trainings in one batched program), and
    end.

    Args:
        wanted: The number of trainers and their resources.
        n_nodes: Number of nodes that must be up before the first trainer starts.

    Attributes:
        trainers: The trainers by number. A number is never used again.
        nodes: The nodes that are up, by id.
        record: The nodes' failures and notices.
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
        """The number of packs of trainings that can train at the same time."""
        return sum(trainer.node is not None for trainer in self.trainers.values()) or max(len(self.trainers), 1)

    @property
    def n_placed(self) -> int:
        """The number of trainers that are up."""
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
        """Whether any trainer is training, rather than waiting for the driver's answer."""
        return len(self.running) > len(self._at_probe)

    def see(self, nodes: Iterable[Node]) -> bool:
        """Records the nodes that are up."""
        self.nodes = {node.id: node for node in nodes}
        self.record.seen(self.nodes)
        if len(self.nodes) >= self.n_awaited:
            self.n_awaited = 0
        return not self.n_awaited and not self.is_closing

    def follow(self) -> list[Action]:
        """Adapts the trainers to the nodes: starts trainers where there is room, and ends those for which there is none
        any more. A trainer that is training first hands back its trainings.

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
        """Returns the trainers that each node should have. Those that fit on no node yet are under the key `None`."""
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
        """Records that a trainer is up."""
        if changes:
            self.record.give_up(node_id, host, f"its versions or code differ from the driver's: {'; '.join(changes)}")
            return [self._end(number)]
        trainer = self.trainers[number]
        trainer.node, trainer.hardware, trainer.is_up = node_id, hardware, True
        self.record.started(node_id)
        self._idle.append(number)
        return []

    def not_started(self, number: int, why: str, *, has_lost_its_node: bool) -> list[Action]:
        """Records that a trainer did not start."""
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
        """Gives an order to train a pack (trainings in one batched program) to the trainer that has been idle longest:
        if possible, to one on the type of machine that the order asks for."""
        fitting = (number for number in self._idle if order.machine in (None, self.trainers[number].hardware.machine))
        number = next(fitting, self._idle[0])
        self._idle.remove(number)
        self.trainers[number].order = order
        return number

    def answered(self, pack: str) -> int:
        """Records that the driver has answered a measurement of a pack of trainings: the pack continues, and its
        trainer no longer waits."""
        return self._at_probe.pop(pack)

    def reported(self, number: int, report: Report) -> tuple[Report | TrainerLost, list[Action]]:
        """Handles the report that a trainer has sent."""
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
        """Handles a trainer that has died. The next call of `follow` replaces the trainer if it is still wanted."""
        return [self._end(number)]

    def forget(self) -> None:
        """Removes all trainers from the plan, after they have ended."""
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
