"""The resources of a sweep: Ray, on this machine or a cluster; or this process alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS, RunContext
from attnsweep.orchestrator.training.pool import Pool
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload

StartPool: TypeAlias = "Callable[[Workload[Any], RunContext], Pool]"
"""Starts the trainers of a workload, for one run."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a run may use, and its limits.

    Attributes:
        address: A Ray cluster; `None` for `RAY_ADDRESS` or this machine.
        local: Train in this process, without Ray.
        n_trainers: Trainer actors; `None` for one per GPU or core.
        pack_size: Trainings in a pack; `None` finds the fastest size.
        max_failures: Trainings that may fail in this run before it stops; `None` for any number.
        checkpoint_seconds: Seconds between two checkpoints of a pack.

    Raises:
        UserError: If `local` comes with an address, or with several trainers.
    """

    address: str | None = None
    local: bool = False
    n_trainers: int | None = None
    pack_size: int | None = None
    max_failures: int | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    def __post_init__(self) -> None:
        if self.local and self.address is not None:
            raise _not_local(f"--address {self.address}", "no --address")
        if self.local and self.n_trainers not in (None, 1):
            raise _not_local(f"--trainers {self.n_trainers}", "at most --trainers 1")


@contextmanager
def open_resources(resources: Resources) -> Iterator[StartPool]:
    """A context that yields a function to start trainers on these resources. A Ray started here ends with it.

    Raises:
        UserError: If the resources are not available.
        PoolError: If Ray does not start.
    """
    if resources.local:
        from attnsweep.orchestrator.training.local_pool import LocalPool
        from attnsweep.workloads.engine.process import check_rounding

        check_rounding()
        yield lambda workload, run: LocalPool(workload, run, resources.checkpoint_seconds)
        return
    from attnsweep.orchestrator.training import cluster
    from attnsweep.orchestrator.training.ray_pool import TrainerPool

    with cluster.connection(resources.address):
        shares = cluster.share_out(resources.n_trainers)
        yield lambda workload, run: TrainerPool(workload, run, shares, resources.checkpoint_seconds)


def _not_local(given: str, expected: str) -> UserError:
    return UserError(
        "--local",
        given=given,
        expected=f"{expected}, because --local trains in this process",
        fix="leave out one of the two",
    )
