"""The trainers of a sweep: long-lived Ray actors, each with one pack at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError

from orchestrator.cluster import TrainerShare
from orchestrator.trainer import PackOrder, Progress, Report, Trainer
from workloads.engine.contract import Workload


@dataclass(frozen=True)
class TrainerLost:
    """The trainer died, with its machine or by itself; the pack has to be trained again."""

    reason: str


class TrainerPool:
    """Hands packs to idle trainers and collects their reports. A dead trainer is replaced.

    Args:
        workload: The problem, sent to each trainer once.
        sweep: The sweep that rows are labelled with.
        shares: What each trainer asks Ray for.
    """

    def __init__(self, workload: Workload[Any], sweep: str, shares: Sequence[TrainerShare]) -> None:
        self._arguments = (ray.put(workload), sweep)
        self._shares = tuple(shares)
        self._actors: list[ActorHandle[Trainer]] = [self._start(share) for share in shares]
        self._idle = list(range(len(shares)))
        self._running: dict[ray.ObjectRef[Report], tuple[int, PackOrder]] = {}

    @property
    def n_trainers(self) -> int:
        """How many packs can train at once."""
        return len(self._actors)

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
        ready, _ = ray.wait(list(self._running), timeout=timeout)
        return [self._collect(reference) for reference in ready]

    def close(self) -> None:
        """Ends all trainers at once, with what they are training."""
        for actor in self._actors:
            ray.kill(actor)
        self._running.clear()

    def _collect(self, reference: ray.ObjectRef[Report]) -> tuple[PackOrder, Report | TrainerLost]:
        trainer, order = self._running.pop(reference)
        try:
            report: Report = ray.get(reference)
        except RayActorError as error:
            self._actors[trainer] = self._start(self._shares[trainer])
            self._idle.append(trainer)
            return order, TrainerLost(str(error))
        if isinstance(report, Progress):
            self._running[self._actors[trainer].proceed.remote()] = (trainer, order)
        else:
            self._idle.append(trainer)
        return order, report

    def _start(self, share: TrainerShare) -> ActorHandle[Trainer]:
        actor_class = ray.remote(num_cpus=share.num_cpus, num_gpus=share.num_gpus)(Trainer)
        return cast("ActorHandle[Trainer]", actor_class.remote(*self._arguments, share.device))
