"""A user's workload in one file: a small problem that takes time without computing, where `NAP` says so."""

import os
import time

from torch import Tensor, nn

from attnsweep import Batch, Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs


class Slow(CategoryPairs):
    """Each step takes `NAP` seconds more."""

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        time.sleep(float(os.environ.get("NAP", "0")))
        return super().loss(module, batch)


def sweep() -> Sweep:
    """8 trials x 4 trainings."""
    return Sweep(
        name="slow",
        workload="/srv/slow.py:Slow",
        space={
            "n_steps": 300,
            "n_categories": 3,
            "n_positions": 5,
            "stop_when_solved": False,
            "init_sigma": Float(0.1, 1.0),
        },
        sampler="random",
        trials=8,
        replicates=4,
        seed=5,
    )
