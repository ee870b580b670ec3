"""How large packs get, and what a later run knows of it."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running import pack_sizes
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.pack_sizes import PackSizes, sizes_of_user
from attnsweep.orchestrator.running.plan import PackSizer
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Batch, Lanes
from attnsweep.workloads.engine.device_memory import PackMemory
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


def _climb_in(free: int) -> list[int]:
    """The sizes of packs on a GPU with so many free bytes, where a pack takes 10 KB and 1 KB for each lane."""
    sizer, sizes = PackSizer(None), list[int]()
    for _ in range(6):
        sizes.append(sizer.size(MANY))
        sizer.measured(sizes[-1], float(sizes[-1]), PackMemory(sizes[-1], 10_000 + 1000 * sizes[-1], free))
    return sizes


def test_packs_on_a_gpu_grow_eightfold_as_far_as_its_memory_goes() -> None:
    assert _climb_in(10**9) == [64, 512, 4096, 4096, 4096, 4096]
    # 700 lanes fit 90% of it. A pack is as wide as the next power of two.
    assert _climb_in(790_000) == [64, 512, 512, 512, 512, 512]
    # By the first pack alone 249 seem to fit, by the first two 278.
    assert _climb_in(320_000) == [64, 128, 256, 256, 256, 256]
    # What has fitted fits.
    assert _climb_in(1000) == [64, 64, 64, 64, 64, 64]


def test_a_little_left_over_joins_the_last_pack() -> None:
    assert PackSizer(None).size(fair_share=80) == 80
    assert PackSizer(None).size(fair_share=96) == 96
    assert PackSizer(None).size(fair_share=97) == 64
    sizer = PackSizer(None)
    sizer.out_of_memory(128)
    assert sizer.size(fair_share=80) == 64


SHAPE, OTHER = ("adam", 5, None), ("sgd", 5, None)
H100 = "NVIDIA H100"


def _measured(sizes: PackSizes, rates: dict[int, float], n_packs: int = 8) -> None:
    for _ in range(n_packs):
        size = sizes.sizer(H100, SHAPE).size(MANY)
        sizes.sizer(H100, SHAPE).measured(size, rates.get(size, 1.0))
    sizes.save()


def test_a_later_run_begins_with_what_was_measured_on_the_same_accelerator(tmp_path: Path) -> None:
    place = LocalFolder(tmp_path)
    _measured(PackSizes(None, place), {64: 100, 128: 180, 256: 181})
    later = PackSizes(None, place)
    assert later.sizer(H100, SHAPE).size(MANY) == 128
    assert later.sizer(H100, OTHER).size(MANY) == later.sizer("cpu", SHAPE).size(MANY) == PackSizer.smallest
    later.sizer("cpu", SHAPE).out_of_memory(64)
    later.save()
    last = PackSizes(None, place)
    assert (last.sizer(H100, SHAPE).size(MANY), last.sizer("cpu", SHAPE).size(MANY)) == (128, 32)


def test_a_size_that_is_given_is_neither_kept_nor_replaced(tmp_path: Path) -> None:
    place = LocalFolder(tmp_path)
    _measured(PackSizes(7, place), {7: 100})
    assert list(tmp_path.iterdir()) == []
    _measured(PackSizes(None, place), {64: 100, 128: 180, 256: 181})
    assert PackSizes(7, place).sizer(H100, SHAPE).size(MANY) == 7


def test_it_is_written_when_a_size_is_new(tmp_path: Path) -> None:
    sizes = PackSizes(None, LocalFolder(tmp_path))
    _measured(sizes, {64: 100}, n_packs=1)
    (file,) = tmp_path.iterdir()
    file.unlink()
    sizes.sizer(H100, SHAPE).measured(64, 101.0)
    sizes.save()
    assert list(tmp_path.iterdir()) == []
    _measured(sizes, {128: 200}, n_packs=1)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("text", ["", "{}", '{"sizes": {"cpu": {"[]": {"rates": {"0": 1.0}, "limit": 9}}}}'])
def test_what_cannot_be_read_is_measured_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "pack_sizes.json").write_text(text)
    assert PackSizes(None, LocalFolder(tmp_path)).sizer("cpu", ()).size(MANY) == PackSizer.smallest


@pytest.mark.scale
@pytest.mark.slow
def test_a_resumed_sweep_begins_with_the_sizes_found_and_its_rows_do_not_depend_on_them(
    no_mlflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tmp_path / "s", tmp_path / "s" / "pack_sizes.json"
    spec = sweeps.small_sweep(trials=50)
    spec = spec.but(space=dict(spec.space) | {"optimizer": "sgd", "n_steps": 5})
    sweeps.run(spec, tmp_path / "undisturbed")
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(spec, path).finished
    before = Ledger(path).trainings(columns=["pack_size"])["pack_size"].to_pylist()
    assert before == [64] * 64
    assert '"64":' in file.read_text()
    # Without its digest, as an earlier version wrote it.
    kept = {"sizes": json.loads(file.read_text())["sizes"]}
    file.write_text(json.dumps(kept).replace('"limit": 4096', '"limit": 16'))
    assert sweeps.resume(path).finished
    assert {*Ledger(path).trainings(columns=["pack_size"])["pack_size"].to_pylist()} == {64, 16, 8}
    assert sweeps.outcomes(path) == sweeps.outcomes(tmp_path / "undisturbed")


def test_a_later_sweep_begins_with_the_sizes_of_this_one_but_not_with_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    of_user = sizes_of_user("category_pairs", "blocks")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    sizes = PackSizes(None, LocalFolder(tmp_path / "a"), of_user)
    _measured(sizes, {64: 100, 128: 180, 256: 181})
    sizes.sizer(H100, SHAPE).out_of_memory(256)
    sizes.save_for_user()
    later = LocalFolder(tmp_path / "b")
    assert PackSizes(None, later, of_user).sizer(H100, SHAPE).size(MANY) == PackSizer.smallest  # A short run.
    sizes.trained(10**7)
    sizes.save_for_user()
    assert PackSizes(None, later, of_user).sizer(H100, SHAPE).size(MANY) == 128
    known = PackSizes(None, later, of_user).sizer(H100, SHAPE)
    assert known.rates == sizes.sizer(H100, SHAPE).rates
    assert known.limit == PackSizer.largest
    for other in (sizes_of_user("category_pairs", "vmapped"), sizes_of_user("gpt", "blocks"), None):
        assert PackSizes(None, later, other).sizer(H100, SHAPE).size(MANY) == PackSizer.smallest
    # What the sweep itself has measured comes first.
    _measured(PackSizes(None, later), {64: 100})
    assert PackSizes(None, later, of_user).sizer(H100, SHAPE).size(MANY) == PackSizer.smallest


@pytest.mark.scale
@pytest.mark.slow
def test_rows_do_not_depend_on_what_other_sweeps_found(
    no_mlflow: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(pack_sizes, "_FEWEST_LANE_STEPS", 1)
    spec = sweeps.small_sweep(trials=30, sampler="random")
    spec = spec.but(space=dict(spec.space) | {"optimizer": "sgd", "n_steps": 5})
    sweeps.run(spec, tmp_path / "a")
    (file,) = (tmp_path / "state" / "attnsweep" / "pack_sizes").rglob("*.json")
    place = LocalFolder(file.parent)
    kept = pack_sizes._read(place)
    rates = {
        accelerator: {shape: {"rates": {16: 2.0, 32: 1.0}, "limit": 4096} for shape in shapes}
        for accelerator, shapes in kept.items()
    }
    pack_sizes._KEPT.write(place, pack_sizes._Kept.model_validate({"sizes": rates}))
    sweeps.run(spec, tmp_path / "b")
    assert Ledger(tmp_path / "b").trainings(columns=["pack_size"])["pack_size"][0].as_py() == 16
    assert sweeps.outcomes(tmp_path / "b") == sweeps.outcomes(tmp_path / "a")


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
    assert '"limit": 16' in (tmp_path / "s" / "pack_sizes.json").read_text()
