"""What a pool of trainers does next, given what it has heard. Plain state in, actions out: no Ray, and no clock."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.messages import (
    HandedBack,
    PackOrder,
    Probed,
    Progress,
    Raised,
    Report,
    TrainerLost,
)
from attnsweep.orchestrator.training.node_record import NodeRecord
from attnsweep.orchestrator.training.trainers_per_node import Amount, Node, TrainerShare, Wanted, allot, left_by


@dataclass
class Trainer:
    """A trainer, from its request to its end.

    Attributes:
        share: Its resources.
        node: Where it is or has to be; `None` where Ray chooses and has not said yet.
        accelerator, machine: The types of what it trains on and of its machine, once it has settled.
        order: The pack that it trains, or that waits at a probe for an answer.
        is_up: Whether it has settled.
        is_leaving: Whether it ends as soon as it has handed back its pack.
    """

    share: TrainerShare
    node: str | None
    accelerator: str = ""
    machine: str = ""
    order: PackOrder | None = None
    is_up: bool = False
    is_leaving: bool = False


class Action(NamedTuple):
    """What is done with a trainer, by its number.

    `start` it, for its share, on its node or where Ray finds a place; let it `go on` with its pack for a slice; ask it
    to `hand back` its pack; `end` it.
    """

    what: Literal["start", "go on", "hand back", "end"]
    number: int


class PoolPlan:
    """Decides which trainers start, train on, hand back their packs, and end.

    Args:
        wanted: How many trainers, on what.
        n_nodes: Nodes that have to be up before the first trainer starts.

    Attributes:
        trainers: By number. A number is given once.
        nodes: Those that are up, by id.
        record: What is known of them.
        n_awaited: Nodes that have to be up before any trainer starts; 0 once they were.
        claimed: What the trainers of this sweep have or wait for, by node, as `follow` saw it last.
        is_closing: Whether all packs are to be handed back, and no trainer starts any more.
    """

    def __init__(self, wanted: Wanted, n_nodes: int = 0) -> None:
        self.trainers: dict[int, Trainer] = {}
        self.nodes: Mapping[str, Node] = {}
        self.record = NodeRecord()
        self.n_awaited = n_nodes
        self.claimed: Mapping[str, Amount] = {}
        self.is_closing = False
        self._wanted = wanted
        self._n_started = 0
        self._idle: list[int] = []
        self._at_probe: dict[str, int] = {}

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once; before any node is up, how many trainers are asked for."""
        return sum(each.node is not None for each in self.trainers.values()) or max(len(self.trainers), 1)

    @property
    def n_placed(self) -> int:
        """How many trainers are up."""
        return sum(each.is_up for each in self.trainers.values())

    @property
    def has_idle(self) -> bool:
        """Whether a trainer has no pack."""
        return bool(self._idle)

    @property
    def accelerator(self) -> str:
        """The type of the trainer that gets the next pack."""
        return self.trainers[self._idle[0]].accelerator

    @property
    def machine(self) -> str:
        """The type of machine of the trainer that gets the next pack."""
        return self.trainers[self._idle[0]].machine

    @property
    def machines(self) -> frozenset[str]:
        """The types of machine of all trainers that are up."""
        return frozenset(each.machine for each in self.trainers.values() if each.is_up)

    @property
    def idle_machines(self) -> frozenset[str]:
        """Those of trainers that are idle."""
        return frozenset(self.trainers[number].machine for number in self._idle)

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""
        return [each.order for each in self.trainers.values() if each.order is not None]

    @property
    def is_training(self) -> bool:
        """Whether a trainer will report on a pack without being answered first."""
        return len(self.running) > len(self._at_probe)

    def held(self, *, by_trainers_up: bool) -> dict[str, list[TrainerShare]]:
        """The shares of trainers that are up, or of those that are not, by their node."""
        found: dict[str, list[TrainerShare]] = {}
        for each in self.trainers.values():
            if each.is_up == by_trainers_up and each.node is not None and each.node in self.nodes:
                found.setdefault(each.node, []).append(each.share)
        return found

    def see(self, nodes: Iterable[Node]) -> bool:
        """Notes the nodes that are up; returns whether trainers are to `follow` them."""
        self.nodes = {node.id: node for node in nodes}
        self.record.seen(self.nodes)
        if len(self.nodes) >= self.n_awaited:
            self.n_awaited = 0
        return not self.n_awaited and not self.is_closing

    def follow(self, claims: Mapping[str, Amount]) -> list[Action]:
        """Starts the trainers that nodes lack, and lets those go that have no place any more.

        Args:
            claims: What sweeps that come first want, by node.

        Raises:
            PoolError: If no node can train.
        """
        shares = self._allotted(claims)
        self.claimed = {node_id: Amount.of(each.elements()) for node_id, each in shares.items() if node_id and each}
        actions: list[Action] = []
        # Those that are up stay, before those that wait.
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

    def _allotted(self, claims: Mapping[str, Amount]) -> dict[str | None, Counter[TrainerShare]]:
        """The trainers that each node shall have; under `None` those without a node yet."""
        usable = [node for node in self.nodes.values() if node.id not in self.record.refused]
        staying = [each for each in self.trainers.values() if not each.is_leaving]
        there = Counter(each.node for each in staying if each.node is not None)
        # While others come first, more nodes are for them to ask for.
        wanted = replace(self._wanted, least=0) if claims else self._wanted
        allotment = allot(left_by(usable, claims, wanted.device), wanted, there)
        limits = self.record.limits
        shares: dict[str | None, Counter[TrainerShare]] = {
            node_id: Counter(each[: limits.get(node_id, len(each))]) for node_id, each in allotment.by_node.items()
        }
        if self.record.refused and not claims and not any(shares.values()):
            raise PoolError(f"no node can train: {self.record.in_words()}")
        self.record.wait_for(len(allotment.pending))
        return {**shares, None: Counter(allotment.pending)}

    def settled(
        self, number: int, node_id: str, host: str, accelerator: str, changes: Sequence[str], machine: str = ""
    ) -> list[Action]:
        """A trainer is up. It ends, and its node is given up, if its environment differs from the driver's."""
        if changes:
            self.record.differs(node_id, host, changes)
            return [self._end(number)]
        trainer = self.trainers[number]
        trainer.node, trainer.accelerator, trainer.machine, trainer.is_up = node_id, accelerator, machine, True
        self.record.started(node_id)
        self._idle.append(number)
        return []

    def not_started(self, number: int, why: str, *, has_lost_its_node: bool) -> list[Action]:
        """A trainer did not start, which speaks against its node unless that has gone meanwhile."""
        trainer, end = self.trainers[number], self._end(number)
        node = self.nodes.get(trainer.node) if trainer.node is not None else self._node_named_in(why)
        if node is not None and not has_lost_its_node:
            n_up = sum(each.is_up and each.node == node.id for each in self.trainers.values())
            self.record.failed(node, n_up, why)
        return [end]

    def _node_named_in(self, text: str) -> Node | None:
        named = (each for each in self.nodes.values() if re.search(rf"ip[=:] ?{re.escape(each.address)}\b", text))
        return next(named, None)

    def hand_out(self, order: PackOrder) -> int:
        """Gives a pack to the trainer that has been idle longest, on the machine that it names; returns its number."""
        fitting = (each for each in self._idle if order.machine in (None, self.trainers[each].machine))
        number = next(fitting, self._idle[0])
        self._idle.remove(number)
        self.trainers[number].order = order
        return number

    def answered(self, pack: str) -> int:
        """The trainer whose pack waited at a probe, and trains on."""
        return self._at_probe.pop(pack)

    def reported(self, number: int, report: Report) -> tuple[Report | TrainerLost, list[Action]]:
        """What the sweep is told of a trainer's report, and what the trainer does next."""
        trainer = self.trainers[number]
        assert trainer.order is not None
        is_leaving = self.is_closing or trainer.is_leaving
        if isinstance(report, Probed) and not is_leaving:
            self._at_probe[trainer.order.pack] = number
            return report, []
        if isinstance(report, Probed):
            # It hands back its pack undecided: whoever continues it is asked again.
            report = Progress(report.step, report.checkpoint, report.n_running, report.where)
        if isinstance(report, Progress):
            return report, [Action("hand back" if is_leaving else "go on", number)]
        trainer.order = None
        match report:
            case Raised(cannot_compile=True):
                if trainer.node is not None:
                    self.record.cannot_compile(trainer.node, report.host, report.error)
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
        """A trainer has died. The next `follow` replaces it where it is still wanted."""
        return [self._end(number)]

    def forget(self) -> None:
        """All trainers have ended."""
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
