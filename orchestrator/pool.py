"""The trainers of a sweep: long-lived Ray actors, each with one pack at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from orchestrator.cluster import TrainerShare
from orchestrator.trainer import PackOrder, Progress, Report, Trainer
from workloads.engine.contract import Workload


@dataclass(frozen=True)
class TrainerLost:
    """The trainer died, with its machine or by itself; the pack has to be trained again."""

    reason: str


class TrainerPool:
    """Hands packs to idle trainers and collects their reports. A dead trainer is replaced.

    A trainer is idle from the moment that Ray has placed it: with cores or GPUs held by others, the rest work on.

    Args:
        workload: The problem, sent to each trainer once.
        sweep: The sweep that rows are labelled with.
        shares: What each trainer asks Ray for.
    """

    def __init__(self, workload: Workload[Any], sweep: str, shares: Sequence[TrainerShare]) -> None:
        self._arguments = (ray.put(workload), sweep)
        self._shares = tuple(shares)
        self._actors: dict[int, ActorHandle[Trainer]] = {}
        self._placing: dict[ray.ObjectRef[bool], int] = {}
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

    def reports(self, timeout: float) -> list[tuple[PackOrder, Report | TrainerLost]]:
        """What came in within `timeout` seconds. Packs that only made progress are set to train on."""
        ready, _ = ray.wait([*self._running, *self._placing], timeout=timeout)
        for reference in ready:
            if reference in self._placing:
                self._welcome(reference)
        return [self._collect(reference) for reference in ready if reference in self._running]

    def close(self) -> None:
        """Ends all trainers at once, with what they are training."""
        for actor in self._actors.values():
            ray.kill(actor)
        self._running.clear()

    def _welcome(self, reference: "ray.ObjectRef[bool]") -> None:
        trainer = self._placing.pop(reference)
        try:
            ray.get(reference)
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
            # The trainer's own code raised outside of a training: a fault of ours, not of the machine.
            raise
        except RayError as error:
            self._start(trainer)
            return order, TrainerLost(str(error))
        if isinstance(report, Progress):
            self._running[self._actors[trainer].proceed.remote()] = (trainer, order)
        else:
            self._idle.append(trainer)
        return order, report

    def _start(self, trainer: int) -> None:
        if trainer in self._actors:
            # Out of reach is not dead: it may hold its core for as long as it lives.
            ray.kill(self._actors[trainer])
        share = self._shares[trainer]
        actor_class = ray.remote(num_cpus=share.num_cpus, num_gpus=share.num_gpus)(Trainer)
        actor = cast("ActorHandle[Trainer]", actor_class.remote(*self._arguments, share.device))
        self._actors[trainer] = actor
        self._placing[actor.is_placed.remote()] = trainer
