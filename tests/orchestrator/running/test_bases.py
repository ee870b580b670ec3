"""Updates of low rank on a base that another sweep trained: its weights are stored in the sweep that needs them.

A replicate has the same seed in both sweeps, hence the same evaluation sequences.
"""

import os
import pickle
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from attnsweep import Ledger, Sweep, UserError, trained_weights
from attnsweep.orchestrator import cli
from attnsweep.orchestrator.inspection.kept_weights import find_base, keep_weights
from attnsweep.orchestrator.inspection.replay import replay
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep, run_or_resume, run_sweep
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.orchestrator.training.trainer_actor import Shipment
from attnsweep.workloads import files
from attnsweep.workloads.base_names import NamedBase
from attnsweep.workloads.bases import read_base
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.testing import defaults
from tests.fault import sweeps
from tests.orchestrator.trained_sweep import edit_row, trained_sweep

pytestmark = pytest.mark.usefixtures("no_mlflow")
WORKLOAD = GPTWorkload()
QUIET = Console(quiet=True)
LOCAL = Resources(local=True, pack_size=2, engine="vmapped")
SMALL: dict[str, Any] = {"n_steps": 8, "d_model": 8, "batch_size": 4, "eval_batch_size": 8, "n_tokens": 4, "d_ffn": 8}
WHOLE = Sweep(name="whole", workload="gpt", space=SMALL, sampler="grid", trials=1, replicates=3)


def updates(origin: str, **space: Any) -> Sweep:
    """Of every replicate of one base."""
    return WHOLE.but(name="updates", space={**SMALL, "lora_rank": 2, "base": origin, "learning_rate": 0.1, **space})


def forget() -> None:
    """What a process that has only the sweep directory knows."""
    files._carried.clear()
    read_base.cache_clear()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "whole"
    trained_sweep(path, WHOLE)
    return path


@pytest.fixture
def whole(trained: Path, tmp_path: Path) -> Path:
    """A sweep of its own for a test that changes it."""
    shutil.copytree(trained, tmp_path / "whole")
    return tmp_path / "whole"


def losses(path: Path, step: int) -> dict[int, float]:
    sql = f"select replicate, value from curves where metric = 'eval_loss' and step = {step}"
    return dict(Ledger(str(path)).connect().sql(sql).fetchall())


@pytest.mark.scale
@pytest.mark.slow
def test_step_0_is_the_base_to_the_last_bit_and_the_base_stays(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "updates"
    assert run_sweep(updates(f"{whole}:0/1"), path, LOCAL, QUIET).finished
    ended = losses(whole, 8)
    assert losses(path, 0)[1] == ended[1]
    assert losses(path, 0)[2] != ended[2], "the base of all replicates is that of one"
    base, updated = trained_weights(whole, "0/1"), trained_weights(path, "0/2")
    assert all(torch.equal(value, updated[name]) for name, value in base.items())
    assert all(updated[name].any() for name in updated if name.endswith("up.weight"))
    assert losses(path, 8)[1] != losses(path, 0)[1]


@pytest.mark.scale
@pytest.mark.slow
def test_resume_replay_and_a_new_run_need_only_the_sweep(whole: Path, tmp_path: Path) -> None:
    path, origin = tmp_path / "updates", f"{whole}:0/1"
    undisturbed = tmp_path / "undisturbed"
    assert run_sweep(updates(origin), undisturbed, LOCAL, QUIET).finished
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(1, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not run_sweep(updates(origin), path, LOCAL, QUIET).finished
    shutil.rmtree(whole)
    forget()
    assert resume_sweep(path, LOCAL, QUIET).finished
    assert sweeps.outcomes(path) == sweeps.outcomes(undisturbed)
    forget()
    assert replay(SweepDirectory.open(path), "0/2").deviation.agrees
    forget()
    assert run_or_resume(updates(origin), path, LOCAL, QUIET).finished
    forget()
    with pytest.MonkeyPatch.context() as patch:
        again = ["attnsweep", "run", str(path / "sweep.json"), "--local", "--no-report", "--engine", "vmapped"]
        patch.setattr(sys, "argv", [*again, "--dir", str(tmp_path / "again")])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code in (None, 0)
    assert sweeps.outcomes(tmp_path / "again") == sweeps.outcomes(undisturbed)


def found(origin: str) -> NamedBase:
    base = find_base(WORKLOAD, {"base": origin})
    assert base is not None
    return base


def stored(origin: str, path: Path) -> SweepDirectory:
    """A sweep on this base that has not begun."""
    base = found(origin)
    return SweepDirectory.create(path, updates(base.name), {}, base=base)


@pytest.mark.scale
@pytest.mark.slow
def test_another_base_is_another_training_and_kept_or_repeated_weights_are_one(whole: Path) -> None:
    repeated, other = found(f"{whole}:0/1"), found(f"{whole}:0/2")
    by_id = next(row["training_id"] for row in Ledger(whole).trainings().to_pylist() if row["replicate"] == 1)
    keep_weights(SweepDirectory.open(whole), [0], lambda _: None)
    kept = found(f"{whole}:{by_id}")
    assert (kept.name, kept.text) == (repeated.name, repeated.text)
    assert kept.name.startswith(f"{by_id}-")
    identities = [
        defaults(WORKLOAD, **SMALL, lora_rank=2, base=base).identity() for base in (kept.name, other.name, None)
    ]
    assert identities[0] != identities[1]
    assert "base" not in identities[2]


def test_a_trainer_in_another_process_is_sent_the_weights(whole: Path) -> None:
    name = found(f"{whole}:0/1").name
    sent = pickle.dumps(Shipment(WORKLOAD, (name,)))
    shutil.rmtree(whole)
    forget()
    with pytest.raises(UserError, match="base: got"):
        read_base(name)
    pickle.loads(sent)
    assert read_base(name).parameters["d_model"] == 8


@pytest.mark.slow
def test_a_damaged_or_missing_base_is_named(whole: Path, tmp_path: Path) -> None:
    directory = stored(f"{whole}:0/1", tmp_path / "updates")
    (file,) = (tmp_path / "updates/bases").iterdir()
    assert [file.stem] == list(directory.bases)
    forget()
    load_workload_of(directory)
    assert read_base(file.stem).workload == "gpt"
    file.write_text(file.read_text().replace('"n_steps": 8', '"n_steps": 9'))
    with pytest.raises(
        UserError, match=r"bases/.*\.json: got 'other bytes than were written', expected the unchanged weights of"
    ):
        load_workload_of(directory)
    file.unlink()
    with pytest.raises(UserError, match=r"bases/.*\.json: got 'No such file or directory'"):
        load_workload_of(directory)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("origin", "space", "message"),
    [
        ("whole", {}, r"base: got 'whole', expected a training of another sweep, such as sweeps/first:0/3"),
        ("missing:0/0", {}, r"base=missing:0/0: got 'missing', expected DIR: a sweep directory"),
        ("whole:0/9", {}, r"base=whole:0/9: got '0/9', expected TRAINING_ID: a training of whole, by its id"),
        (
            "whole:0/1",
            {"lora_rank": None},
            r"base: got .*, expected base=null, because lora_rank is not set; set lora_rank,"
            r" or",
        ),
        (
            "whole:0/1",
            {"d_model": 16, "d_ffn": None},
            r"d_model: got 16, expected 8, the base's value, .*; --set d_model=8",
        ),
        ("whole:0/1", {"layer_norm_eps": 0.1}, r"layer_norm_eps: got 0.1, expected 1e-05, the base's value"),
        ("0" * 20 + "-" + "0" * 32, {}, r"base: got '0.*', expected a training of another sweep"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, space: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(trained.parent)
    with pytest.raises(UserError, match=message):
        run_sweep(updates(origin, **space), tmp_path / "updates", LOCAL, QUIET)
    assert not (tmp_path / "updates").exists()


@pytest.mark.slow
def test_weights_that_cannot_be_had_are_refused(whole: Path) -> None:
    """A training that ends otherwise when it is trained again, and one that failed; neither was kept."""
    sweep = SweepDirectory.open(whole)
    for values, message in (
        (
            {"final_loss": 17.0, "eval_loss": 17.0},
            "got 'trained again it ends otherwise than recorded, in final_loss, eval_loss",
        ),
        ({"outcome": "failed"}, "a training whose outcome is failed', expected a training that ended without an error"),
    ):
        edit_row(sweep, "trainings", 1, **values)
        with pytest.raises(UserError, match=message):
            found(f"{whole}:0/1")


@pytest.mark.scale
def test_a_base_of_another_workload_or_with_updates_of_its_own_is_refused(tmp_path: Path) -> None:
    other = Sweep(name="other", workload="category_pairs", space={"n_steps": 3}, sampler="grid", trials=1)
    trained_sweep(tmp_path / "other", other)
    with pytest.raises(
        UserError, match="got 'a training of the workload category_pairs', expected a training of the workload gpt"
    ):
        found(f"{tmp_path}/other:0/0")
    trained_sweep(tmp_path / "low", WHOLE.but(space={**SMALL, "lora_rank": 1}, replicates=1))
    with pytest.raises(UserError, match=r"expected a base .* that was trained without lora_rank"):
        defaults(WORKLOAD, **SMALL, lora_rank=2, base=found(f"{tmp_path}/low:0/0").name)
