"""How large packs get."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes
from tests.fault import sweeps

MANY = 10**6


def _climb(rates: dict[int, float], n_packs: int = 20) -> int:
    sizer = PackSizer(None)
    for _ in range(n_packs):
        sizer.measured(sizer.size(MANY), rates.get(sizer.size(MANY), 1.0))
    return sizer.size(MANY)


def test_packs_grow_while_that_pays() -> None:
    assert _climb({64: 100, 128: 180, 256: 250, 512: 255}) == 256
    assert _climb({64: 100, 128: 60}) == 64
    assert _climb({size: size for size in (64, 128, 256, 512, 1024, 2048, 4096)}) == PackSizer.largest


def test_the_last_packs_are_shared_out_but_a_fixed_size_is_kept() -> None:
    assert PackSizer(None).size(fair_share=10) == 10
    assert PackSizer(None).size(fair_share=0) == 1
    assert PackSizer(7).size(fair_share=3) == 7


def test_a_pack_that_did_not_fit_is_never_made_again() -> None:
    sizer = PackSizer(None)
    sizer.measured(64, 100.0)
    sizer.out_of_memory(128)
    sizer.out_of_memory(512)
    for _ in range(5):
        sizer.measured(sizer.size(MANY), 1000.0)
        assert sizer.size(MANY) <= 64


class Hungry(CategoryPairs):
    """System P on a GPU whose memory holds 20 trainings."""

    def batch(self, lanes: Lanes[Any], step: int) -> Batch:
        if len(lanes.trainings) > 20:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return super().batch(lanes, step)


@pytest.mark.slow
def test_packs_that_do_not_fit_into_a_gpu_are_halved_and_no_such_pack_is_made_again(
    no_mlflow: None, tmp_path: Path
) -> None:
    spec = sweeps.small_sweep(trials=40, workload=f"{__name__}:Hungry")
    spec = spec.but(space=dict(spec.space) | {"optimizer": "sgd", "n_steps": 5})
    summary = sweeps.run(spec, tmp_path / "s")
    assert (summary.finished, summary.n_failed) == (True, 0)
    sizes = Ledger(tmp_path / "s").trainings(columns=["pack_size"])["pack_size"].to_pylist()
    # The first pack of 64 became four of 16, and all later packs are no larger than that.
    assert {*sizes[:64]} == {16}
    assert max(sizes) == 16
