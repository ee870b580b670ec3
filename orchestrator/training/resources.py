from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS, Pool, RunContext
from attnsweep.orchestrator.training.nodes import Device, Wanted
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage.environment import Engine
    from attnsweep.workloads.engine.contract import Workload

StartPool: TypeAlias = "Callable[[Workload[Any], RunContext], Pool]"
"""The type of functions that start the trainers of a workload for one run."""


def cluster_address(address: str | None) -> str | None:
    """By default from `RAY_ADDRESS`; `None` if Ray is to be started here."""
    chosen = (environ.get("RAY_ADDRESS") or None) if address is None else address
    return None if chosen == "local" else chosen


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources that a run may use: the cluster or machine, the trainers and their devices, and limits.

    Attributes:
        address: A Ray cluster; `None` for `RAY_ADDRESS` or this machine.
        n_trainers: A number, or the least and the most; `None` for as many as fit: one per GPU, and one per core of
            machines without GPUs. If fewer fit, the rest are requested from Ray, whose autoscaler may add machines.
        n_nodes: Machines of the cluster that must be up before training begins.
        device: `cpu` or `cuda`; `auto` uses the GPUs of machines that have some.
        engine: The engine that takes the steps of a new sweep's trainings; `auto` chooses `compiled` where
            compiling pays.
        pack_size: Trainings in a pack; `None` searches for the fastest size.
        max_failures: Number of trainings that may fail in this run before it stops; `None` for any number.
        checkpoint_seconds: Seconds between two checkpoints of a pack.
        mlflow: Whether the run logs to MLflow; `attnsweep mlflow-sync` does it at any time.

    Raises:
        UserError: If `local` is combined with an address, several trainers, or nodes.
    """

    address: str | None = None
    local: bool = False
    n_trainers: int | tuple[int, int] | None = None
    n_nodes: int = 0
    device: Device = "auto"
    engine: "Engine | Literal['auto']" = "auto"
    pack_size: int | None = None
    max_failures: int | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    mlflow: bool = True

    def __post_init__(self) -> None:
        for is_given, given in (
            (self.address is not None, f"--address {self.address}"),
            (self.n_trainers not in (None, 1), f"--trainers {self.n_trainers}"),
            (self.n_nodes > 1, f"--wait-nodes {self.n_nodes}"),
        ):
            if self.local and is_given:
                expected = "no option for a cluster or for several trainers, because --local trains in this process"
                fix = f"leave out --local, or leave out {given}"
                raise UserError("--local", given=given, expected=expected, fix=fix)

    @property
    def starts_ray(self) -> bool:
        """Rather than joining a cluster."""
        return not self.local and cluster_address(self.address) is None

    @property
    def wanted(self) -> Wanted:
        match self.n_trainers:
            case None:
                return Wanted(device=self.device)
            case int(number):
                return Wanted(number, number, self.device)
            case least, most:
                return Wanted(least, most, self.device)


@contextmanager
def open_resources(resources: Resources) -> Iterator[StartPool]:
    """Yields a function that starts trainers. A Ray that was started for this run ends with the context.

    Raises:
        UserError: If the resources are not available.
        PoolError: If Ray does not start.
    """
    if resources.local:
        from attnsweep.orchestrator.training.local_pool import LocalPool
        from attnsweep.workloads.engine.process import check_rounding

        check_rounding()
        device = _device_here(resources.device)
        yield lambda workload, run: LocalPool(workload, run, device, resources.checkpoint_seconds)
        return
    import ray

    from attnsweep.orchestrator.training import cluster
    from attnsweep.orchestrator.training.ray_pool import TrainerPool

    with cluster.connection(cluster_address(resources.address)) as is_only_here:
        if is_only_here:
            _check_fits(resources)
        yield lambda workload, run: TrainerPool(
            workload,
            run,
            resources.wanted,
            n_nodes=resources.n_nodes,
            checkpoint_seconds=resources.checkpoint_seconds,
            # The pool shuts Ray down when it is closed, in the same thread. A shutdown in another thread could end the
            # process, if an object reference is freed at the same time.
            at_close=ray.shutdown if is_only_here else lambda: None,
        )


def _device_here(device: Device) -> str:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--device", given=device, expected="a GPU that PyTorch can use on this machine", fix="leave out --device"
        )
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def _check_fits(resources: Resources) -> None:
    from attnsweep.orchestrator.training.cluster import usable_nodes

    nodes = usable_nodes() or []
    n_cpus, n_gpus = (int(sum(counts)) for counts in zip(*((node.n_cpus, node.n_gpus) for node in nodes), strict=True))
    wanted = resources.wanted
    if wanted.device == "cuda" and n_gpus == 0:
        fix = "leave out --device"
        raise UserError("--device", given="cuda", expected="the device cpu or auto, because Ray finds no GPU", fix=fix)
    if (wanted.device == "cpu" or n_gpus == 0) and wanted.least > n_cpus:
        expected = f"1 to {n_cpus} trainers, because this machine has {n_cpus} CPU cores"
        fix = "give a lower number: each trainer needs a CPU core"
        raise UserError("--trainers", given=wanted.least, expected=expected, fix=fix)
    if resources.n_nodes > 1:
        expected = "--wait-nodes 1, because Ray runs only on this machine"
        fix = "give a cluster's address with --address"
        raise UserError("--wait-nodes", given=resources.n_nodes, expected=expected, fix=fix)
