"""What a node says of itself. Run as a module there, in a process of its own, it prints one JSON object."""

import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.process import check_rounding
from attnsweep.workloads.errors import in_words
from attnsweep.workloads.registry import load_workload

_WORKLOAD = "category_pairs"
_TINY = {"n_steps": 20, "n_categories": 3, "n_positions": 4}


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """One node, as it finds itself.

    Attributes:
        host: Its name.
        environment: Versions of libraries, and digests of the code that trains: fields of an `Environment`.
        n_gpus: NVIDIA GPUs that the kernel's driver has.
        n_torch_gpus: Those that PyTorch sees. Of a GPU's slices (MIG) a process sees one: if it does, all that it is
            given count.
        shm_bytes: Size of /dev/shm.
        clock: Its time, in seconds since 1970.
        packs: By device, what was wrong with a tiny pack trained on it; empty where nothing was.
    """

    host: str
    environment: Mapping[str, Any]
    n_gpus: int
    n_torch_gpus: int
    shm_bytes: int
    clock: float
    packs: Mapping[str, str]

    @classmethod
    def here(cls) -> "NodeFacts":
        """Of this process's node. Takes seconds: PyTorch is imported, and trains."""
        n_seen = torch.cuda.device_count()
        return cls(
            host=platform.node(),
            environment=Environment.current(load_workload(_WORKLOAD)).model_dump(),
            n_gpus=len(list(Path("/proc/driver/nvidia/gpus").glob("*"))),
            n_torch_gpus=_with_slices(n_seen),
            shm_bytes=_shm_bytes(),
            packs={"cpu": _trained("cpu")} | {f"cuda:{index}": _trained("cuda", index) for index in range(n_seen)},
            clock=time.time(),
        )


def _shm_bytes() -> int:
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return found.f_frsize * found.f_blocks


def _with_slices(n_seen: int) -> int:
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return len(given) if n_seen and given[0].startswith("MIG-") else n_seen


def _trained(device: str, index: int = -1) -> str:
    """Trains a tiny pack, on a GPU by its index as on a trainer's only one; returns what was wrong with that."""
    workload = load_workload(_WORKLOAD)
    try:
        check_rounding()
        # A negative index leaves everything as it is.
        with torch.cuda.device(index):
            pack = Pack(workload, [Training(workload.parameters.resolve(_TINY), seed) for seed in range(2)], device)
            pack.train_to_end()
    except Exception as error:  # noqa: BLE001  # A broken PyTorch or GPU raises whatever it likes.
        return in_words(error)
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(NodeFacts.here())) + "\n")
