"""The module of a training has the weights of its end or of a step; what other libraries read from it is the same."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from attnsweep import Categorical, Sweep, UserError, open_sweep
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.inspection.trained_module import load
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.commands import Ended, command
from tests.orchestrator.small_sweep import small_sweep, smallest_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.trained_sweep import records, trained_sweep
from tests.refusals import refused

SPEC = smallest_sweep(
    {
        "n_steps": 24,
        "init_sigma": 0.3,
        "learning_rate": 0.05,
        "optimizer": Categorical(("adam", "lbfgs")),
        "stop_when_solved": False,
    },
    trials=2,
    replicates=2,
)

GPT = Sweep(
    name="small",
    workload="gpt",
    space={"n_steps": 12, "d_model": 8, "n_heads": 2, "attention_scale": "one", "batch_size": 8, "eval_batch_size": 16},
    sampler="grid",
    trials=1,
    replicates=2,
)
TOKENS = torch.tensor([[0, 1, 2, 3, 0], [3, 3, 1, 0, 2]])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "s"
    trained_sweep(path, SPEC)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("trial", [0, 1])
def test_the_module_at_a_step_has_the_loss_of_its_curve(whole: Path, trial: int) -> None:
    sweep = open_sweep(whole)
    curve = sweep.sql(
        "select step, value from curves join trainings using (training_id) where metric = 'loss' and step <= n_steps "
        f"and trainings.trial = {trial} and trainings.replicate = 1 order by step"
    ).to_pylist()
    assert len(curve) > 4
    for row in curve[:: len(curve) // 2]:
        module = sweep.module(f"{trial}/1", step=row["step"])
        assert not module.training
        assert module.population_loss().item() == pytest.approx(row["value"], rel=1e-12)  # type: ignore[operator]
    (end,) = records(sweep.directories[0], trial=trial, replicate=1)
    ended = sweep.module(f"{trial}/1").population_loss()  # type: ignore[operator]
    assert ended.item() == pytest.approx(end["final_loss"], rel=1e-12)


@pytest.mark.slow
def test_kept_weights_are_taken_and_nothing_is_trained(whole: Path, tmp_path: Path) -> None:
    sweep = SweepDirectory.open(Path(shutil.copytree(whole, tmp_path / "s")))
    keep_weights(sweep, [0], lambda _: None)
    state = torch.get_rng_state()
    module = open_sweep(tmp_path / "s").module("0/0")
    assert torch.equal(torch.get_rng_state(), state)
    for path in (tmp_path / "s" / "weights").glob("*"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="a weights file whose bytes differ from those that were written"):
        open_sweep(tmp_path / "s").module("0/0")
    again = open_sweep(whole).module("0/0").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in module.state_dict().items())


def test_what_is_not_there_is_refused(whole: Path) -> None:
    sweep = open_sweep(whole)
    with refused("TRAINING_ID", UserError):
        sweep.module("7/0")
    with refused("step", UserError):
        sweep.module("0/0", step=25)


def test_tied_parameters_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    load(module, {"0.weight": torch.ones(3, 3, dtype=torch.float64)})
    assert module[1].weight is module[0].weight
    assert module[1].weight.dtype == torch.float64


@pytest.fixture(scope="module")
def gpts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "s"
    trained_sweep(path, GPT)
    return path


def export(gpts: Path, to: str, out: Path, *more: str, training: str = "0/1") -> Ended:
    return command("export", gpts, training, "--to", to, "--out", out, *more)


@pytest.mark.slow
def test_a_file_of_safetensors_has_the_weights_and_where_they_are_from(gpts: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="no safetensors: pip install 'attnsweep[safetensors]'")
    from safetensors.torch import load_file

    found = export(gpts, "safetensors", tmp_path / "out", "--step", "5")
    assert found.code == 0
    file = tmp_path / "out" / "model.safetensors"
    assert found.out == f'module.load_state_dict(safetensors.torch.load_file("{file}"))\n'
    assert list((tmp_path / "out").iterdir()) == [file]
    module, blank = (open_sweep(gpts).module("0/1", step=step) for step in (5, 0))
    blank.load_state_dict(load_file(file))
    assert torch.equal(blank(TOKENS), module(TOKENS))
    with safetensors.safe_open(file, "pt") as opened:
        said = opened.metadata()
    assert (said["workload"], said["trial"], said["replicate"], said["step"]) == ("gpt", "0", "1", "5")
    assert json.loads(said["parameters"])["attention_scale"] == "one"
    assert said["training_id"] in open_sweep(gpts).trainings()["training_id"].to_pylist()


@pytest.mark.slow
def test_a_file_of_pytorch_has_the_weights_and_needs_no_extra(
    gpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    found = export(gpts, "pt", tmp_path / "out", "--step", "5")
    assert (found.code, found.out) == (0, f'module.load_state_dict(torch.load("{tmp_path}/out/model.pt"))\n')
    module, blank = (open_sweep(gpts).module("0/1", step=step) for step in (5, 0))
    blank.load_state_dict(torch.load(tmp_path / "out" / "model.pt"))
    assert torch.equal(blank(TOKENS), module(TOKENS))
    assert json.loads((tmp_path / "out" / "about.json").read_text())["step"] == 5


@pytest.mark.slow
def test_hugging_face_computes_the_same_logits(gpts: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="no transformers: pip install 'attnsweep[hf]'")
    found = export(gpts, "hf", tmp_path / "out")
    assert found.out == f'transformers.GPT2LMHeadModel.from_pretrained("{tmp_path}/out")\n'
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.allclose(model(TOKENS).logits, open_sweep(gpts).module("0/1")(TOKENS), atol=1e-6)
    assert model.config.attnsweep["step"] == 12


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    gpts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    sweep_on_disk(tmp_path / "failed", small_sweep("failed"), trial_rows(0, ["failed"] * 4))
    for sweep, out, training, said in (
        (gpts, "full", "0/1", "--out: got"),
        (gpts, "out", "3/0", "TRAINING_ID: got '3/0'"),
        (tmp_path / "failed", "out", "0/0", "TRAINING_ID: got 'the training 0/0 with the outcome failed'"),
    ):
        ended = export(sweep, "safetensors", tmp_path / out, training=training)
        assert (ended.code, ended.err.startswith(f"attnsweep: {said}")) == (2, True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    ended = export(gpts, "safetensors", tmp_path / "out")
    assert (ended.code, "attnsweep[safetensors]" in ended.err, "--to pt" in ended.err) == (2, True, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failed", "full"]


@pytest.mark.slow
def test_heads_that_are_held_are_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="no safetensors: pip install 'attnsweep[safetensors]'")
    space = {**GPT.space, "intervention": "clamp 0:1 none 6..; scale attention 2 0..9; freeze ffn 0.."}
    trained_sweep(tmp_path / "s", GPT.but(space=space))
    for step, text in ((None, "clamp 0:1 none 6.."), ("3", "scale attention 2 0..9")):
        ended = export(tmp_path / "s", "safetensors", tmp_path / "out", *(("--step", step) if step else ()))
        assert (ended.code, text in ended.err, f"step {step or 12}" in ended.err) == (2, True, True)
    assert not (tmp_path / "out").exists()
    module = open_sweep(tmp_path / "s").module("0/1")
    assert module.attention(TOKENS)[0, :, 1].eq(0).all()  # type: ignore[operator]
