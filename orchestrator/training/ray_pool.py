"""The trainers of a sweep: long-lived Ray actors on the nodes of a cluster, each with one pack at a time."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.storage.training_code import digests_by_text, digests_here, installed_modules
from attnsweep.orchestrator.training.cluster import usable_nodes
from attnsweep.orchestrator.training.messages import (
    CHECKPOINT_SECONDS,
    HandedBack,
    PackOrder,
    Probed,
    Progress,
    Raised,
    Report,
    Reports,
    RunContext,
    TrainerLost,
)
from attnsweep.orchestrator.training.neighbours import Neighbours
from attnsweep.orchestrator.training.node_record import NodeRecord, is_of_the_node
from attnsweep.orchestrator.training.ray_internals import dead_process
from attnsweep.orchestrator.training.shares import Amount, Node, TrainerShare, Wanted, allot, left_by
from attnsweep.orchestrator.training.shipment import Shipment
from attnsweep.orchestrator.training.trainer_actor import Settled, TrainerActor
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.engine.shape_programs import KnownPrograms

_LOOK_SECONDS = 1.0
"""Seconds between two queries for the nodes that are up, and for those that Ray is about to remove."""
_HEAD_SECONDS = 40.0
"""How long a cluster's head may be silent. After 60 Ray ends the driver's process, without an exception."""
_NODE_LABEL = "ray.io/node-id"


@dataclass
class _Trainer:
    """A trainer, from its request to its end.

    Attributes:
        node: Where it is or has to be; `None` where Ray chooses and has not said yet.
        accelerator: The type of what it trains on, once it has settled.
        is_up: Whether it has settled.
        is_leaving: Whether it ends as soon as it has handed back its pack.
        has_programs: Whether the programs that the driver compiled were sent to it.
    """

    actor: "ActorHandle[TrainerActor]"
    share: TrainerShare
    node: str | None
    accelerator: str = ""
    is_up: bool = False
    is_leaving: bool = False
    has_programs: bool = False


class TrainerPool:
    """Hands packs to idle trainers and collects their reports. A dead trainer is replaced.

    The pool follows the cluster: nodes that come are used at the next look, and trainers on nodes that are about to go
    (Ray drains the node, or the process gets a SIGTERM) hand back their packs. A trainer is idle as soon as Ray has
    placed it: while other programs hold some cores or GPUs, the rest of the trainers work. A trainer whose GPU context
    is broken is replaced. Nodes where no trainer starts, or where other code would train, are given up. What sweeps of
    higher priority want is left to them: trainers in their way hand back their packs, and start again when it is free.

    Args:
        workload: The problem, sent to each trainer once.
        run: The run that its rows name.
        wanted: How many trainers, on what.
        n_nodes: Nodes that have to be up before the first trainer starts.
        priority: Among the sweeps on the cluster; those of higher priority come first.
        checkpoint_seconds: Seconds between two checkpoints of a pack.
        programs: Compiled by this process meanwhile; no pack is handed out before they are sent to its trainer.
        at_close: Called once the trainers have ended.

    Raises:
        PoolError: From `reports`, if Ray is gone, or all nodes are given up.
    """

    def __init__(
        self,
        workload: Workload[Any],
        run: RunContext,
        wanted: Wanted,
        *,
        n_nodes: int = 0,
        priority: int = 0,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        programs: "Future[KnownPrograms] | None" = None,
        at_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._programs, self._at_close = programs, at_close
        self._sent: ray.ObjectRef[KnownPrograms] | None = None
        self._modules = installed_modules(workload)
        self._environment = Environment(versions=versions(run.engine), code=digests_here(self._modules))
        self._digests = digests_by_text(self._modules)
        self._shipment, self._run = ray.put(Shipment(workload, run.files)), run
        self._wanted, self._n_nodes = wanted, n_nodes
        self._checkpoint_seconds = checkpoint_seconds
        self._nodes: dict[str, Node] = {}
        self._record = NodeRecord()
        self._neighbours = Neighbours(run.sweep, priority)
        self._looked = float("-inf")
        self._answered = time.monotonic()
        self._is_closing, self._n_started = False, 0
        self._trainers: dict[int, _Trainer] = {}
        self._placing: dict[ray.ObjectRef[Settled], int] = {}
        self._running: dict[ray.ObjectRef[Report], tuple[int, PackOrder]] = {}
        self._waiting: dict[str, tuple[int, PackOrder]] = {}
        self._idle: list[int] = []
        self._look()

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once; before any node is up, how many trainers are asked for."""
        return sum(each.node is not None for each in self._trainers.values()) or max(len(self._trainers), 1)

    @property
    def n_placed(self) -> int:
        """How many trainers are up."""
        return sum(each.is_up for each in self._trainers.values())

    @property
    def waiting_for(self) -> str:
        """What has to come before any pack can train; empty once one can."""
        if self._n_nodes:
            return f"{self._n_nodes} nodes; {len(self._nodes)} are up"
        if self.n_placed:
            return "" if self._are_compiled else "the compiler"
        others = self._neighbours.waiting_for
        return f"cores: {others}" if others else f"Ray to start {self.n_trainers} trainers"

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""
        return bool(self._idle) and self._are_compiled

    @property
    def _are_compiled(self) -> bool:
        return self._programs is None or self._programs.done()

    @property
    def accelerator(self) -> str:
        """The type of the trainer that gets the next pack."""
        return self._trainers[self._idle[0]].accelerator

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""
        return [order for _, order in (*self._running.values(), *self._waiting.values())]

    def notices(self) -> list[str]:
        """What the user should know of the trainers since the last call."""
        return [*self._record.notices(), *self._neighbours.notices()]

    def train(self, order: PackOrder) -> None:
        """Hands a pack to an idle trainer."""
        number = self._idle.pop(0)
        trainer = self._trainers[number]
        if self._programs is not None and self._run.engine == "blocks" and not trainer.has_programs:
            self._sent = self._sent or ray.put(self._programs.result())
            # An actor answers its calls in their order.
            trainer.actor.take_programs.remote(self._sent)
            trainer.has_programs = True
        self._running[trainer.actor.start.remote(order, self.n_trainers)] = (number, order.without_state())

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        """Lets a pack that waits at a probe train on without the trainings at these positions."""
        waiting = number, _ = self._waiting.pop(order.pack)
        self._running[self._trainers[number].actor.proceed.remote(pruned)] = waiting

    def reports(self, timeout: float) -> Reports:
        """The reports received within `timeout` seconds. Packs that only made progress continue to train."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        return self._collect_within(timeout)

    def hand_back(self, seconds: float) -> Reports:
        """Asks all trainers for their packs; returns the reports received in time, and leaves the other packs."""
        self._is_closing = True
        deadline = time.monotonic() + seconds
        found = []
        while self._running and (left := deadline - time.monotonic()) > 0:
            found += self._collect_within(left)
        return found

    def close(self) -> None:
        """Ends all trainers at once, with what they are training."""
        while self._trainers:
            ray.kill(self._trainers.popitem()[1].actor)
        self._running.clear()
        self._neighbours.close()
        self._at_close()

    def _collect_within(self, timeout: float) -> Reports:
        waited_for = [*self._running, *self._placing]
        if not waited_for:
            if self._programs is not None and not self._programs.done():
                wait([self._programs], timeout)
            else:
                # Until a node comes.
                time.sleep(timeout)
            return []
        ready, _ = ray.wait(waited_for, timeout=timeout)
        if ready:
            # By then others may be ready too: all of them at once.
            ready, _ = ray.wait(waited_for, num_returns=len(waited_for), timeout=0)
        for reference in ready:
            if reference in self._placing:
                self._welcome(reference)
        return [self._collect(reference) for reference in ready if reference in self._running]

    def _look(self) -> None:
        """Follows the cluster.

        Raises:
            PoolError: If Ray is gone, which would end this process within a minute; or if no node can train.
        """
        self._looked = time.monotonic()
        if (process := dead_process()) is not None:
            self._lose(f"Ray's process {process} has died")
        nodes = usable_nodes()
        if nodes is None:
            if self._looked - self._answered > _HEAD_SECONDS:
                self._lose(f"the head of the Ray cluster has not answered for {_HEAD_SECONDS:g} s")
            return
        self._answered = self._looked
        self._nodes = {node.id: node for node in nodes}
        self._record.seen(self._nodes)
        if len(nodes) >= self._n_nodes:
            self._n_nodes = 0
        if not self._n_nodes and not self._is_closing:
            self._follow([node for node in nodes if node.id not in self._record.refused])

    def _lose(self, reason: str) -> NoReturn:
        # With Ray gone, `close` has nobody to ask to end the actors.
        self._trainers.clear()
        self._running.clear()
        raise PoolError(reason)

    def _follow(self, nodes: Sequence[Node]) -> None:
        """Starts the trainers that nodes lack, and lets those go that have no place any more."""
        self._neighbours.look()
        shares = self._allotted(nodes)
        claimed = {node_id: Amount.of(each.elements()) for node_id, each in shares.items() if node_id and each}
        # Those that are up stay, before those that wait.
        for number, each in sorted(self._trainers.items(), key=lambda item: not item[1].is_up):
            if not each.is_leaving:
                self._keep_or_release(number, each, shares.get(each.node, Counter()))
        for node_id, missing in shares.items():
            for share in missing.elements():
                self._start(share, node_id)
        self._compare_notes(claimed)

    def _allotted(self, nodes: Sequence[Node]) -> dict[str | None, Counter[TrainerShare]]:
        """The trainers that each node shall have; under `None` those without a node yet."""
        staying = [each for each in self._trainers.values() if not each.is_leaving]
        there = Counter(each.node for each in staying if each.node is not None)
        # While others come first, more nodes are for them to ask for.
        wanted = replace(self._wanted, least=0) if (claims := self._neighbours.claims) else self._wanted
        allotment = allot(left_by(nodes, claims, wanted.device), wanted, there)
        limits = self._record.limits
        shares: dict[str | None, Counter[TrainerShare]] = {
            node_id: Counter(each[: limits.get(node_id, len(each))]) for node_id, each in allotment.by_node.items()
        }
        if self._record.refused and not claims and not any(shares.values()):
            raise PoolError(f"no node can train: {self._record.in_words()}")
        self._record.wait_for(len(allotment.pending))
        return {**shares, None: Counter(allotment.pending)}

    def _compare_notes(self, claimed: Mapping[str, Amount]) -> None:
        """Tells other sweeps what this one has and wants, and finds those that are in its way."""
        held = self._by_node([each for each in self._trainers.values() if each.is_up])
        self._neighbours.tell(self.n_placed, {node: Amount.of(shares) for node, shares in held.items()}, claimed)
        waiting = self._by_node([each for each in self._trainers.values() if not each.is_up])
        self._neighbours.compare(self._nodes, claimed, {node: len(shares) for node, shares in waiting.items()})

    def _by_node(self, trainers: Sequence[_Trainer]) -> dict[str, list[TrainerShare]]:
        """The shares of trainers on nodes that are up."""
        found: dict[str, list[TrainerShare]] = {}
        for each in trainers:
            if each.node in self._nodes:
                found.setdefault(each.node, []).append(each.share)
        return found

    def _keep_or_release(self, number: int, trainer: _Trainer, places: Counter[TrainerShare]) -> None:
        if places[trainer.share] > 0:
            places[trainer.share] -= 1
        elif any(number == running for running, _ in self._running.values()):
            trainer.is_leaving = True
        else:
            self._end(number)

    def _welcome(self, reference: "ray.ObjectRef[Settled]") -> None:
        number = self._placing.pop(reference)
        trainer = self._trainers[number]
        try:
            settled: Settled = ray.get(reference)
        except RayError as error:
            self._count_failure(number, trainer, error)
            return
        if changes := settled.changes_from(self._environment):
            self._record.differs(settled.node, settled.host, changes)
            self._end(number)
            return
        trainer.node, trainer.accelerator, trainer.is_up = settled.node, settled.accelerator, True
        self._record.started(settled.node)
        self._idle.append(number)

    def _count_failure(self, number: int, trainer: _Trainer, error: RayError) -> None:
        self._end(number)
        node = self._nodes.get(trainer.node) if trainer.node is not None else self._node_named_in(error)
        if node is None or is_of_the_node(error):
            return
        n_up = sum(each.is_up and each.node == node.id for each in self._trainers.values())
        self._record.failed(node, n_up, error)

    def _node_named_in(self, error: RayError) -> Node | None:
        text = str(error)
        named = (each for each in self._nodes.values() if re.search(rf"ip[=:] ?{re.escape(each.address)}\b", text))
        return next(named, None)

    def _is_leaving(self, number: int) -> bool:
        return self._is_closing or self._trainers[number].is_leaving

    def _collect(self, reference: "ray.ObjectRef[Report]") -> tuple[PackOrder, Report | TrainerLost]:
        number, order = self._running.pop(reference)
        try:
            report: Report = ray.get(reference)
        except RayTaskError:
            # The trainer's own code raised outside of a training: our fault, not the machine's.
            raise
        except RayError as error:
            self._end(number)
            return order, TrainerLost(str(error), _is_out_of_memory(error))
        if isinstance(report, Probed) and self._is_leaving(number):
            # It hands back its pack undecided: whoever continues it is asked again.
            report = Progress(report.step, report.checkpoint, report.n_running, report.where)
        if isinstance(report, Raised) and report.cannot_compile:
            node = self._trainers[number].node
            if node is not None:
                self._record.cannot_compile(node, report.host, report.error)
            self._end(number)
            return order, TrainerLost(report.error, out_of_memory=False)
        match report:
            case Probed():
                self._waiting[order.pack] = (number, order)
            case Progress() if self._is_leaving(number):
                self._running[self._trainers[number].actor.hand_back.remote()] = (number, order)
            case Progress():
                self._running[self._trainers[number].actor.proceed.remote()] = (number, order)
            case HandedBack() if not self._is_closing:
                self._end(number)
            case Raised(has_lost_its_gpu=True):
                self._end(number)
            case _ if self._trainers[number].is_leaving:
                self._end(number)
            case _:
                self._idle.append(number)
        return order, report

    def _start(self, share: TrainerShare, node_id: str | None) -> None:
        options: dict[str, Any] = {"num_cpus": share.num_cpus, "num_gpus": share.num_gpus}
        if node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
        elif self._record.refused:
            others = NotIn(*self._record.refused)
            options["scheduling_strategy"] = NodeLabelSchedulingStrategy({_NODE_LABEL: others})
        actor_class = ray.remote(**options)(TrainerActor)
        actor = cast(
            "ActorHandle[TrainerActor]",
            actor_class.remote(self._shipment, self._run, share.device, self._checkpoint_seconds),
        )
        self._n_started += 1
        self._trainers[self._n_started] = _Trainer(actor, share, node_id)
        self._placing[actor.settle.remote(self._modules, self._digests)] = self._n_started

    def _end(self, number: int) -> None:
        """Ends a trainer; the next look, which comes at once, replaces it where it is still wanted."""
        # A trainer out of reach may still be alive, and hold its core.
        ray.kill(self._trainers.pop(number).actor)
        self._placing = {reference: each for reference, each in self._placing.items() if each != number}
        if number in self._idle:
            self._idle.remove(number)
        self._looked = float("-inf")


def _is_out_of_memory(error: RayError) -> bool:
    # The error of a dead actor names the cause only in its text.
    return isinstance(error, OutOfMemoryError) or "OutOfMemory" in str(error) or "OUT_OF_MEMORY" in str(error)
