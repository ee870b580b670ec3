"""Opens the pool of trainers that a run has: on Ray, or in this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from attnsweep.orchestrator.training.messages import Pool, RunContext
from attnsweep.orchestrator.training.resources import Device, Resources
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.workloads.engine.contract import Workload

StartPool: TypeAlias = "Callable[[Workload[Any], RunContext], Pool]"


@contextmanager
def open_resources(resources: Resources) -> Iterator[StartPool]:
    """Yields a function that starts trainers. A Ray that was started for this run ends with the context. Raises
    UserError if the resources are not available, PoolError if Ray does not start."""
    if resources.local:
        from attnsweep.orchestrator.training.local_pool import LocalPool
        from attnsweep.workloads.engine.process import check_rounding

        check_rounding()
        device = _device_here(resources.device)
        yield lambda workload, run: LocalPool(workload, run, device, resources.checkpoint_seconds)
        return
    from attnsweep.orchestrator.training.cluster import connection
    from attnsweep.orchestrator.training.ray_pool import TrainerPool, places_in

    with connection(resources.address) as cluster:
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
