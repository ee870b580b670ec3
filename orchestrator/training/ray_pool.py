"""The trainers of a sweep: long-lived Ray actors, each with one pack at a time."""

import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

from attnsweep.orchestrator.storage.errors import PoolError
from attnsweep.orchestrator.training.cluster import TrainerShare, draining_nodes
from attnsweep.orchestrator.training.messages import (
    CHECKPOINT_SECONDS,
    HandedBack,
    PackOrder,
    Progress,
    Raised,
    Report,
    Reports,
    RunContext,
    TrainerLost,
)
from attnsweep.orchestrator.training.ray_internals import dead_process
from attnsweep.orchestrator.training.shipment import Shipment
from attnsweep.orchestrator.training.trainer import Trainer
from attnsweep.workloads.engine.contract import Workload

_DRAINING_SECONDS = 1.0
"""Seconds between two queries for the nodes that Ray is about to remove."""
_HEAD_SECONDS = 40.0
"""How long a cluster's head may be silent. After 60 Ray ends the driver's process, without an exception."""


class TrainerActor(Trainer):
    """A trainer as Ray runs it, in a process of its own."""

    def __init__(self, shipment: Shipment, run: RunContext, device: str, checkpoint_seconds: float) -> None:
        super().__init__(shipment.workload, run, device, checkpoint_seconds)

    def settle(self) -> str:
        """Returns the id of the trainer's node, once Ray has given the trainer its resources and its process is up.

        From here on a SIGTERM, which a machine sends before it is taken away, makes the trainer hand back its pack.
        """
        before = signal.getsignal(signal.SIGTERM)

        def leave(number: int, frame: FrameType | None) -> None:
            self.leave()
            # With nothing to hand back, Ray's own handler ends the process.
            if not self.has_pack and callable(before):
                before(number, frame)

        signal.signal(signal.SIGTERM, leave)
        return str(ray.get_runtime_context().get_node_id())


class TrainerPool:
    """Hands packs to idle trainers and collects their reports. A dead trainer is replaced.

    A trainer is idle as soon as Ray has placed it: while other programs use some cores or GPUs, the rest of the
    trainers work. A trainer whose node is about to go (Ray drains the node, or the process gets a SIGTERM) hands back
    its pack and is replaced. A trainer whose GPU context is broken is replaced too.

    Args:
        workload: The problem, sent to each trainer once.
        run: The run that its rows name.
        shares: The resources of each trainer.
        checkpoint_seconds: Seconds between two checkpoints of a pack.
    """

    def __init__(
        self,
        workload: Workload[Any],
        run: RunContext,
        shares: Sequence[TrainerShare],
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._shipment, self._run = ray.put(Shipment(workload, run.files)), run
        self._shares = tuple(shares)
        self._checkpoint_seconds = checkpoint_seconds
        self._actors: dict[int, ActorHandle[TrainerActor]] = {}
        self._nodes: dict[int, str] = {}
        self._draining: frozenset[str] = frozenset()
        self._looked = 0.0
        self._answered = time.monotonic()
        self._is_closing = False
        self._placing: dict[ray.ObjectRef[str], int] = {}
        self._running: dict[ray.ObjectRef[Report], tuple[int, PackOrder]] = {}
        self._idle: list[int] = []
        for trainer in range(len(shares)):
            self._start(trainer)

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once."""
        return len(self._shares)

    @property
    def n_placed(self) -> int:
        """How many trainers Ray has placed."""
        return self.n_trainers - len(self._placing)

    @property
    def has_idle(self) -> bool:
        """Whether a pack can be handed out."""
        return bool(self._idle)

    @property
    def running(self) -> list[PackOrder]:
        """The packs being trained."""
        return [order for _, order in self._running.values()]

    def train(self, order: PackOrder) -> None:
        """Hands a pack to an idle trainer."""
        trainer = self._idle.pop(0)
        self._running[self._actors[trainer].start.remote(order)] = (trainer, order)

    def reports(self, timeout: float) -> Reports:
        """The reports received within `timeout` seconds. Packs that only made progress continue to train."""
        self._look_at_nodes()
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
        for actor in self._actors.values():
            ray.kill(actor)
        self._running.clear()

    def _collect_within(self, timeout: float) -> Reports:
        ready, _ = ray.wait([*self._running, *self._placing], timeout=timeout)
        for reference in ready:
            if reference in self._placing:
                self._welcome(reference)
        return [self._collect(reference) for reference in ready if reference in self._running]

    def _look_at_nodes(self) -> None:
        if time.monotonic() - self._looked < _DRAINING_SECONDS:
            return
        self._looked = time.monotonic()
        self._check_ray()
        for trainer in [each for each in self._idle if self._is_leaving(each)]:
            self._idle.remove(trainer)
            self._start(trainer)

    def _check_ray(self) -> None:
        """Notes which nodes are about to go.

        Raises:
            PoolError: If Ray is gone: it would end this process within a minute.
        """
        if (process := dead_process()) is not None:
            self._lose(f"Ray's process {process} has died")
        draining = draining_nodes()
        if draining is not None:
            self._draining, self._answered = draining, self._looked
        elif self._looked - self._answered > _HEAD_SECONDS:
            self._lose(f"the head of the Ray cluster has not answered for {_HEAD_SECONDS:g} s")

    def _lose(self, reason: str) -> NoReturn:
        # With Ray gone, `close` has nobody to ask to end the actors.
        self._actors.clear()
        self._running.clear()
        raise PoolError(reason)

    def _is_leaving(self, trainer: int) -> bool:
        return self._is_closing or self._nodes.get(trainer) in self._draining

    def _welcome(self, reference: "ray.ObjectRef[str]") -> None:
        trainer = self._placing.pop(reference)
        try:
            self._nodes[trainer] = ray.get(reference)
        except RayTaskError:
            raise
        except RayError:
            self._start(trainer)
        else:
            self._idle.append(trainer)

    def _collect(self, reference: "ray.ObjectRef[Report]") -> tuple[PackOrder, Report | TrainerLost]:
        trainer, order = self._running.pop(reference)
        try:
            report: Report = ray.get(reference)
        except RayTaskError:
            # The trainer's own code raised outside of a training: our fault, not the machine's.
            raise
        except RayError as error:
            self._start(trainer)
            return order, TrainerLost(str(error), _is_out_of_memory(error))
        match report:
            case Progress() if self._is_leaving(trainer):
                self._running[self._actors[trainer].hand_back.remote()] = (trainer, order)
            case Progress():
                self._running[self._actors[trainer].proceed.remote()] = (trainer, order)
            case HandedBack() if not self._is_closing:
                self._start(trainer)
            case Raised(has_lost_its_gpu=True):
                self._start(trainer)
            case _:
                self._idle.append(trainer)
        return order, report

    def _start(self, trainer: int) -> None:
        if trainer in self._actors:
            # A trainer out of reach may still be alive, and hold its core.
            ray.kill(self._actors[trainer])
        share = self._shares[trainer]
        actor_class = ray.remote(num_cpus=share.num_cpus, num_gpus=share.num_gpus)(TrainerActor)
        actor = cast(
            "ActorHandle[TrainerActor]",
            actor_class.remote(self._shipment, self._run, share.device, self._checkpoint_seconds),
        )
        self._actors[trainer] = actor
        self._nodes.pop(trainer, None)
        self._placing[actor.settle.remote()] = trainer


def _is_out_of_memory(error: RayError) -> bool:
    # The error of a dead actor names the cause only in its text.
    return isinstance(error, OutOfMemoryError) or "OutOfMemory" in str(error) or "OUT_OF_MEMORY" in str(error)
