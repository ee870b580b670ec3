from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attnsweep.orchestrator.training.messages import CHECKPOINT_SECONDS, Pool, RunContext
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.orchestrator.storage.environment import Engine
    from attnsweep.workloads.engine.contract import Workload

Device: TypeAlias = Literal["auto", "cpu", "cuda"]
TrainerCount: TypeAlias = int | tuple[int, int] | None
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
        n_trainers: A number, or the least with which to begin and the most; `None` for one per GPU or core. If fewer
            fit, the rest are requested from Ray, whose autoscaler may add machines.
        n_nodes: Machines of the cluster that must be up before training begins.
        device: `cpu` or `cuda`; `auto` uses the GPUs if the cluster has some.
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
    n_trainers: TrainerCount = None
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
    from attnsweep.orchestrator.training.cluster import connection
    from attnsweep.orchestrator.training.ray_pool import TrainerPool, places_in

    with connection(cluster_address(resources.address)) as cluster:
        if cluster.is_ours:
            _check_fits(resources, *places_in(cluster.nodes()))
        yield lambda workload, run: TrainerPool(workload, run, resources, cluster)


def _device_here(device: Device) -> str:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "--device", given=device, expected="a GPU that PyTorch can use on this machine", fix="leave out --device"
        )
    return "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"


def _check_fits(resources: Resources, n_cpus: int, n_gpus: int) -> None:
    wanted, device = resources.n_trainers, resources.device
    least = wanted[0] if isinstance(wanted, tuple) else wanted or 1
    if device == "cuda" and n_gpus == 0:
        fix = "leave out --device"
        raise UserError("--device", given="cuda", expected="the device cpu or auto, because Ray finds no GPU", fix=fix)
    if (device == "cpu" or n_gpus == 0) and least > n_cpus:
        expected = f"1 to {n_cpus} trainers, because this machine has {n_cpus} CPU cores"
        fix = "give a lower number: each trainer needs a CPU core"
        raise UserError("--trainers", given=least, expected=expected, fix=fix)
    if resources.n_nodes > 1:
        expected = "--wait-nodes 1, because Ray runs only on this machine"
        fix = "give a cluster's address with --address"
        raise UserError("--wait-nodes", given=resources.n_nodes, expected=expected, fix=fix)
