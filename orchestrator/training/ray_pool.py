"""The trainers of a sweep on a Ray cluster, as long-lived actors.

`PoolPlan` decides what to do. This module does it through Ray, and passes Ray's answers to the plan.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import ActorUnschedulableError, OutOfMemoryError, RayError, RayTaskError
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    NotIn,
)

from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.cluster import usable_nodes
from attnsweep.orchestrator.training.messages import (
    CHECKPOINT_SECONDS,
    Hardware,
    PackOrder,
    Report,
    Reports,
    RunContext,
    TrainerLost,
)
from attnsweep.orchestrator.training.nodes import Wanted
from attnsweep.orchestrator.training.pool_plan import Action, PoolPlan
from attnsweep.orchestrator.training.ray_internals import dead_process
from attnsweep.orchestrator.training.trainer_actor import Settled, Shipment, TrainerActor
from attnsweep.workloads.engine.contract import Workload

_LOOK_SECONDS = 1.0
"""Seconds between two requests for the nodes that are up, and for those that Ray is about to remove."""
_HEAD_SECONDS = 40.0
"""How long a cluster's head may be silent. After 60 s, Ray ends the driver's process without an exception."""
_NODE_LABEL = "ray.io/node-id"
_NODE_IS_GONE = "its node has died"


class TrainerPool:
    """Gives packs to idle trainers and collects their reports. A trainer that dies is replaced.

    The pool follows the cluster: new nodes are used at the next look, and trainers on nodes that are about to leave
    (Ray drains the node, or the process gets a SIGTERM) hand back their packs. A trainer is idle as soon as Ray has
    placed it: while other programs hold some cores or GPUs, the placed trainers work. A trainer whose GPU context is
    broken is replaced. Nodes on which no trainer starts, or other code would train, are given up.

    Args:
        workload: Sent to each trainer once.
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
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        at_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._at_close = at_close
        self._environment = Environment(versions=versions(run.engine))
        self._shipment, self._run = ray.put(Shipment(workload, run.files)), run
        self._checkpoint_seconds = checkpoint_seconds
        self._plan = PoolPlan(wanted, n_nodes)
        self._actors: dict[int, ActorHandle[TrainerActor]] = {}
        # Maps each unanswered call of a Ray actor (the start of a trainer, or a request for its progress) to the
        # trainer's number.
        self._calls: dict[ray.ObjectRef[Any], int] = {}
        self._looked, self._answered = float("-inf"), time.monotonic()
        self._look()

    @property
    def n_trainers(self) -> int:
        return self._plan.n_trainers

    @property
    def n_placed(self) -> int:
        return self._plan.n_placed

    @property
    def waiting_for(self) -> str:
        if self._plan.n_awaited:
            return f"{self._plan.n_awaited} nodes; {len(self._plan.nodes)} are up"
        if self.n_placed:
            return ""
        return f"Ray to start {self.n_trainers} trainers"

    @property
    def has_idle(self) -> bool:
        return self._plan.has_idle

    @property
    def idle(self) -> list[Hardware]:
        return self._plan.idle

    @property
    def machines(self) -> frozenset[str]:
        return self._plan.machines

    @property
    def running(self) -> list[PackOrder]:
        return self._plan.running

    def notices(self) -> list[str]:
        return self._plan.record.notices()

    def train(self, order: PackOrder) -> None:
        number = self._plan.hand_out(order.without_state())
        self._calls[self._actors[number].do.remote("start", order, self.n_trainers)] = number

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        number = self._plan.answered(order.pack)
        self._calls[self._actors[number].do.remote("proceed", pruned)] = number

    def reports(self, timeout: float) -> Reports:
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        return self._collect_within(timeout)

    def hand_back(self, seconds: float) -> Reports:
        self._plan.is_closing = True
        deadline = time.monotonic() + seconds
        reports = []
        while self._plan.is_training and (left := deadline - time.monotonic()) > 0:
            reports += self._collect_within(left)
        return reports

    def close(self) -> None:
        while self._actors:
            ray.kill(self._actors.popitem()[1])
        self._forget()
        self._at_close()

    def _forget(self) -> None:
        self._actors.clear()
        self._calls.clear()
        self._plan.forget()

    def _collect_within(self, timeout: float) -> Reports:
        waited_for = [*self._calls]
        if not waited_for:
            # No trainer is up yet, so the pool sleeps before it looks for a free node again.
            time.sleep(timeout)
            return []
        ready, _ = ray.wait(waited_for, timeout=timeout)
        if ready:
            # After the first report, more trainers may have reported. So all reports that have arrived are taken at
            # once.
            ready, _ = ray.wait(waited_for, num_returns=len(waited_for), timeout=0)
        reports: Reports = []
        for reference in ready:
            number = self._calls.pop(reference)
            if self._plan.trainers[number].is_up:
                reports.append(self._collect(number, reference))
            else:
                self._welcome(number, reference)
        return reports

    def _look(self) -> None:
        self._looked = time.monotonic()
        if (process := dead_process()) is not None:
            self._lose(f"Ray's process {process} has died")
        nodes = usable_nodes()
        if nodes is None:
            if self._looked - self._answered > _HEAD_SECONDS:
                self._lose(f"the head of the Ray cluster has not answered for {_HEAD_SECONDS:g} s")
            return
        self._answered = self._looked
        if self._plan.see(nodes):
            self._do(self._plan.follow())

    def _lose(self, reason: str) -> NoReturn:
        # The connection to Ray is lost, so `close` could not end any actor any more. Therefore the references to the
        # actors are dropped.
        self._forget()
        raise PoolError(reason)

    def _welcome(self, number: int, reference: "ray.ObjectRef[Settled]") -> None:
        try:
            settled: Settled = ray.get(reference)
        except RayError as error:
            is_gone = isinstance(error, ActorUnschedulableError) or _NODE_IS_GONE in str(error)
            self._do(self._plan.not_started(number, str(error), has_lost_its_node=is_gone))
            return
        changes = self._environment.changes(Environment(versions=settled.versions))
        hardware = Hardware(settled.accelerator, settled.machine)
        self._do(self._plan.settled(number, settled.node, settled.host, hardware, changes))

    def _collect(
        self, number: int, reference: "ray.ObjectRef[tuple[Report, str]]"
    ) -> tuple[PackOrder, Report | TrainerLost]:
        order = self._plan.trainers[number].order
        assert order is not None
        try:
            report, printed = ray.get(reference)
        except RayTaskError:
            # A RayTaskError means that the trainer's own code raised an error outside of any training. This is a fault
            # of attnsweep and not of the machine, so the error is raised again.
            raise
        except RayError as error:
            self._do(self._plan.lost(number))
            return order, TrainerLost(str(error), _is_out_of_memory(error))
        sys.stderr.write(printed)
        report_or_loss, actions = self._plan.reported(number, report)
        self._do(actions)
        return order, report_or_loss

    def _do(self, actions: Iterable[Action]) -> None:
        for action, number in actions:
            match action:
                case "start":
                    self._start(number)
                case "go on":
                    self._calls[self._actors[number].do.remote("proceed")] = number
                case "hand back":
                    self._calls[self._actors[number].do.remote("hand_back")] = number
                case "end":
                    # A trainer that does not answer may still be alive and use its CPU core. Therefore its actor is
                    # killed.
                    ray.kill(self._actors.pop(number))
                    self._calls = {reference: other for reference, other in self._calls.items() if other != number}
                    # The next check of the cluster replaces the ended trainer, if one is still wanted. The time of the
                    # last check is set to minus infinity, so that the next one happens at once.
                    self._looked = float("-inf")

    def _start(self, number: int) -> None:
        trainer, given_up = self._plan.trainers[number], self._plan.record.refused
        options: dict[str, Any] = {"num_cpus": trainer.share.num_cpus, "num_gpus": trainer.share.num_gpus}
        if trainer.node is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(trainer.node, soft=False)
        elif given_up:
            options["scheduling_strategy"] = NodeLabelSchedulingStrategy({_NODE_LABEL: NotIn(*given_up)})
        actor_class = ray.remote(**options)(TrainerActor)
        self._actors[number] = actor = cast(
            "ActorHandle[TrainerActor]",
            actor_class.remote(self._shipment, self._run, trainer.share.device, self._checkpoint_seconds),
        )
        self._calls[actor.settle.remote()] = number


def _is_out_of_memory(error: RayError) -> bool:
    # Ray names the cause of an actor's death only in the error's text, so the text is searched.
    return isinstance(error, OutOfMemoryError) or "OutOfMemory" in str(error) or "OUT_OF_MEMORY" in str(error)
