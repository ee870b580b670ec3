"""The facts about one node. Run as a program on the node, this module prints them as JSON."""

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
    """What one node reports about itself.

    Attributes:
        environment: Versions of libraries: fields of an `Environment`.
        n_gpus: The number of NVIDIA GPUs that the kernel's driver has.
        n_torch_gpus: The number of GPUs that PyTorch sees. PyTorch sees only one slice of a GPU (MIG) per process; if
            it sees one, all slices in CUDA_VISIBLE_DEVICES count.
        clock: The node's time, in seconds since 1970.
        packs: By device, the error of a tiny pack that was trained on it; empty if there was none.
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
        """Takes seconds."""
        n_seen = torch.cuda.device_count()
        return cls(
            host=platform.node(),
            environment=Environment.current().model_dump(),
            n_gpus=len(list(Path("/proc/driver/nvidia/gpus").glob("*"))),
            n_torch_gpus=_with_slices(n_seen),
            shm_bytes=_shm_bytes(),
            packs={"cpu": _trained("cpu")} | {f"cuda:{index}": _trained("cuda", index) for index in range(n_seen)},
            clock=time.time(),
        )


def _shm_bytes() -> int:
    try:
        stats = os.statvfs("/dev/shm")
    except OSError:
        return 0
    return stats.f_frsize * stats.f_blocks


def _with_slices(n_seen: int) -> int:
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return len(devices) if n_seen and devices[0].startswith("MIG-") else n_seen


def _trained(device: str, index: int = -1) -> str:
    """Trains a tiny pack, to show that the device works."""
    workload = load_workload(_WORKLOAD)
    try:
        check_rounding()
        # For the CPU, `index` is negative, and `torch.cuda.device` does nothing.
        with torch.cuda.device(index):
            pack = Pack(workload, [Training(workload.parameters.resolve(_TINY), seed) for seed in range(2)], device)
            pack.train_to_end()
    except Exception as error:  # noqa: BLE001  # A broken PyTorch or GPU may raise any error.
        return in_words(error)
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(NodeFacts.here())) + "\n")
