"""The trainers of a sweep on a Ray cluster, as long-lived actors. `PoolPlan` decides, this module asks Ray."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from attnsweep.orchestrator.storage.environment import Environment, versions
from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.cluster import Cluster
from attnsweep.orchestrator.training.messages import (
    PackOrder,
    Report,
    Reports,
    RunContext,
    TrainerLost,
)
from attnsweep.orchestrator.training.pool_plan import Action, PoolPlan, TrainerShare
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer_actor import Settled, Shipment, TrainerActor
from attnsweep.workloads.engine.contract import Workload

_NODES_SECONDS = 1.0
"""Between two readings of the cluster's nodes."""
_HEAD_SECONDS = 40.0
"""How long a cluster's head may be silent. After 60 s, Ray ends the driver's process without an exception."""
_NODE_IS_GONE = "its node has died"


class TrainerPool:
    """A `Pool` on Ray, which replaces trainers that die. By default it grows and shrinks with the cluster.

    Ray places the trainers, and asks an autoscaler for nodes where they do not fit. `reports` raises PoolError if Ray
    is gone, or trainers do not start.
    """

    def __init__(self, workload: Workload[Any], run: RunContext, resources: Resources, cluster: Cluster) -> None:
        self._resources, self._cluster = resources, cluster
        self._environment = Environment(versions=versions(run.engine))
        self._shipment, self._run = ray.put(Shipment(workload, run.files)), run
        self._plan = PoolPlan(resources.n_trainers)
        self._n_nodes = 0
        self._share: TrainerShare | None = None
        self._actors: dict[int, ActorHandle[TrainerActor]] = {}
        # Unanswered calls, with the number of the trainer.
        self._calls: dict[ray.ObjectRef[Any], int] = {}
        self._nodes_read_at, self._head_answered_at = float("-inf"), time.monotonic()
        self._follow_nodes()

    @property
    def n_trainers(self) -> int:
        return self._plan.n_trainers

    @property
    def waiting_for(self) -> str:
        if self._share is None:
            return f"{self._resources.n_nodes} nodes; {self._n_nodes} are up"
        if self._plan.n_awaited:
            return f"Ray to start {self._plan.n_awaited} of {len(self._plan.trainers)} trainers"
        return ""

    @property
    def idle(self) -> list[str]:
        return self._plan.idle

    @property
    def machines(self) -> frozenset[str]:
        return self._plan.machines

    @property
    def running(self) -> list[PackOrder]:
        return self._plan.running

    def notices(self) -> list[str]:
        return self._plan.notices()

    def train(self, order: PackOrder) -> None:
        number = self._plan.hand_out(order.without_state())
        self._calls[self._actors[number].do.remote("start", order)] = number

    def answer(self, order: PackOrder, pruned: Sequence[int]) -> None:
        number = self._plan.answered(order.pack)
        self._calls[self._actors[number].do.remote("proceed", pruned)] = number

    def reports(self, timeout: float) -> Reports:
        if time.monotonic() - self._nodes_read_at >= _NODES_SECONDS:
            self._follow_nodes()
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
        if self._cluster.is_ours:
            # Here too, not only in `cluster.connection`, which may leave in another thread: freeing a reference during
            # shutdown can kill the process.
            ray.shutdown()

    def _forget(self) -> None:
        self._actors.clear()
        self._calls.clear()
        self._plan.forget()

    def _collect_within(self, timeout: float) -> Reports:
        waited_for = [*self._calls]
        if not waited_for:
            time.sleep(timeout)
            return []
        ready, _ = ray.wait(waited_for, timeout=timeout)
        if ready:
            # All that have arrived by now.
            ready, _ = ray.wait(waited_for, num_returns=len(waited_for), timeout=0)
        reports: Reports = []
        for reference in ready:
            number = self._calls.pop(reference)
            if self._plan.trainers[number].is_up:
                reports.append(self._collect(number, reference))
            else:
                self._welcome(number, reference)
        return reports

    def _follow_nodes(self) -> None:
        self._nodes_read_at = time.monotonic()
        if not self._cluster.answers():
            if self._nodes_read_at - self._head_answered_at > _HEAD_SECONDS:
                self._give_up(f"the head of the Ray cluster has not answered for {_HEAD_SECONDS:g} s")
            return
        self._head_answered_at = self._nodes_read_at
        nodes = self._cluster.nodes()
        if ray.get_runtime_context().get_node_id() not in nodes:
            self._give_up("Ray's node on this machine has died")
        self._n_nodes = len(nodes)
        n_cpus, n_gpus = places_in(nodes)
        if self._share is None and self._n_nodes >= self._resources.n_nodes:
            self._share = TrainerShare.of(n_gpus, self._resources.n_trainers, self._resources.device)
        if self._share is not None:
            self._carry_out(self._plan.follow(nodes, self._share.n_places(n_cpus, n_gpus)))

    def _give_up(self, reason: str) -> NoReturn:
        # `close` can end no actor any more.
        self._forget()
        raise PoolError(reason)

    def _welcome(self, number: int, reference: "ray.ObjectRef[Settled]") -> None:
        try:
            node, host, machine, its_versions = ray.get(reference)
        except RayError as error:
            is_lost = _NODE_IS_GONE in str(error)
            self._carry_out(self._plan.lost(number) if is_lost else self._plan.not_started(number, str(error)))
            return
        changes = self._environment.changes(Environment(versions=its_versions))
        self._carry_out(self._plan.settled(number, node, host, machine, changes))

    def _collect(
        self, number: int, reference: "ray.ObjectRef[tuple[Report, str]]"
    ) -> tuple[PackOrder, Report | TrainerLost]:
        order = self._plan.trainers[number].order
        assert order is not None
        try:
            report, printed = ray.get(reference)
        except RayTaskError:
            # The trainer's own code raised outside of any training: a fault of attnsweep, not of the machine.
            raise
        except RayError as error:
            self._carry_out(self._plan.lost(number))
            return order, TrainerLost(str(error), _is_out_of_memory(error))
        sys.stderr.write(printed)
        report_or_loss, actions = self._plan.reported(number, report)
        self._carry_out(actions)
        return order, report_or_loss

    def _carry_out(self, actions: Iterable[Action]) -> None:
        for action, number in actions:
            match action:
                case "start":
                    self._start(number)
                case "go on":
                    self._calls[self._actors[number].do.remote("proceed")] = number
                case "hand back":
                    self._calls[self._actors[number].do.remote("hand_back")] = number
                case "end":
                    # A trainer that does not answer may still be alive and use its core.
                    ray.kill(self._actors.pop(number))
                    self._calls = {reference: other for reference, other in self._calls.items() if other != number}
                    # The next `reports` replaces it if it is still wanted.
                    self._nodes_read_at = float("-inf")

    def _start(self, number: int) -> None:
        assert self._share is not None
        device, num_cpus, num_gpus = self._share
        actor_class = ray.remote(num_cpus=num_cpus, num_gpus=num_gpus, scheduling_strategy="SPREAD")(TrainerActor)
        self._actors[number] = actor = cast(
            "ActorHandle[TrainerActor]",
            actor_class.remote(self._shipment, self._run, device, self._resources.checkpoint_seconds),
        )
        self._calls[actor.settle.remote()] = number


def places_in(nodes: Mapping[str, Mapping[str, float]]) -> tuple[int, int]:
    n_cpus, n_gpus = (sum(int(node.get(kind, 0)) for node in nodes.values()) for kind in ("CPU", "GPU"))
    return n_cpus, n_gpus


def _is_out_of_memory(error: RayError) -> bool:
    # Ray names the cause of an actor's death only in the error's text.
    return isinstance(error, OutOfMemoryError) or "OutOfMemory" in str(error) or "OUT_OF_MEMORY" in str(error)
