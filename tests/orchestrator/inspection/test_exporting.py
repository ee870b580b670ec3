"""What another library reads from an exported folder computes what the trained module computes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from attnsweep import Sweep, open_sweep
from attnsweep.orchestrator.cli import app
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.trained_sweep import trained_sweep

SPEC = Sweep(
    name="small",
    workload="gpt",
    space={"n_steps": 12, "d_model": 8, "n_heads": 2, "attention_scale": "one", "batch_size": 8, "eval_batch_size": 16},
    sampler="grid",
    trials=1,
    replicates=2,
)
TOKENS = torch.tensor([[0, 1, 2, 3, 0], [3, 3, 1, 0, 2]])


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "s"
    trained_sweep(path, SPEC)
    return path


def export(sweep: Path, to: str, out: Path, *more: str, training: str = "0/1") -> Result:
    return CliRunner().invoke(app, ["export", str(sweep), training, "--to", to, "--out", str(out), *more])


@pytest.mark.slow
def test_a_file_of_safetensors_has_the_weights_and_where_they_are_from(sweep: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors", reason="no safetensors: pip install 'attnsweep[safetensors]'")
    from safetensors.torch import load_file

    found = export(sweep, "safetensors", tmp_path / "out", "--step", "5")
    assert found.exit_code == 0
    file = tmp_path / "out" / "model.safetensors"
    assert found.stdout == f'module.load_state_dict(safetensors.torch.load_file("{file}"))\n'
    assert list((tmp_path / "out").iterdir()) == [file]
    module, blank = (open_sweep(sweep).module("0/1", step=step) for step in (5, 0))
    blank.load_state_dict(load_file(file))
    assert torch.equal(blank(TOKENS), module(TOKENS))
    with safetensors.safe_open(file, "pt") as opened:
        said = opened.metadata()
    assert (said["workload"], said["trial"], said["replicate"], said["step"]) == ("gpt", "0", "1", "5")
    assert json.loads(said["parameters"])["attention_scale"] == "one"
    assert said["training_id"] in open_sweep(sweep).trainings()["training_id"].to_pylist()


@pytest.mark.slow
def test_hugging_face_computes_the_same_logits(sweep: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="no transformers: pip install 'attnsweep[hf]'")
    found = export(sweep, "hf", tmp_path / "out")
    assert found.stdout == f'transformers.GPT2LMHeadModel.from_pretrained("{tmp_path}/out")\n'
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.allclose(model(TOKENS).logits, open_sweep(sweep).module("0/1")(TOKENS), atol=1e-6)
    assert model.config.attnsweep["step"] == 12


@pytest.mark.slow
def test_transformer_lens_computes_the_same_logits(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformer_lens", reason="no TransformerLens: pip install 'attnsweep[lens]'")
    from transformer_lens.model_bridge import TransformerBridge

    assert export(sweep, "transformer-lens", tmp_path / "out").exit_code == 0
    bridge = TransformerBridge.boot_transformers(str(tmp_path / "out"))
    logits, cache = bridge.run_with_cache(TOKENS)
    module = open_sweep(sweep).module("0/1")
    assert torch.allclose(logits, module(TOKENS), atol=1e-6)
    maps = cache["blocks.0.attn.hook_pattern"]
    assert torch.allclose(maps, module.attention(TOKENS)[0], atol=1e-6)  # type: ignore[operator]


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()

    def refused(change: Callable[[], Result]) -> str:
        error = change().exception
        assert isinstance(error, UserError)
        return str(error)

    assert "--out: got" in refused(lambda: export(sweep, "safetensors", tmp_path / "full"))
    assert "TRAINING_ID: got '3/0'" in refused(lambda: export(sweep, "safetensors", tmp_path / "out", training="3/0"))
    failed = sweep_on_disk(tmp_path / "failed", small_sweep("failed"), trial_rows(0, ["failed"] * 4))
    assert "got 'the training 0/0 with the outcome failed'" in refused(
        lambda: export(Path(str(failed.place)), "safetensors", tmp_path / "out", training="0/0")
    )
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert refused(lambda: export(sweep, "safetensors", tmp_path / "out")).endswith(
        "expected an installed library; install it with: pip install 'attnsweep[safetensors]'"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["failed", "full"]


@pytest.mark.slow
def test_heads_that_are_held_are_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="no safetensors: pip install 'attnsweep[safetensors]'")
    space = {**SPEC.space, "intervention": "clamp 0:1 none 6..; scale attention 2 0..9; freeze ffn 0.."}
    trained_sweep(tmp_path / "s", SPEC.but(space=space))
    for step, text in ((None, "clamp 0:1 none 6.."), ("3", "scale attention 2 0..9")):
        error = export(tmp_path / "s", "safetensors", tmp_path / "out", *(("--step", step) if step else ())).exception
        assert isinstance(error, UserError)
        assert str(error) == (
            f"TRAINING_ID: got \"0/1, in which the intervention '{text}' acts at step {step or 12}\", expected a "
            "training without such an intervention then: other libraries cannot clamp or scale heads; choose another "
            "step with --step, or use open_sweep(...).module(...), which applies the intervention"
        )
    assert not (tmp_path / "out").exists()
    module = open_sweep(tmp_path / "s").module("0/1")
    assert module.attention(TOKENS)[0, :, 1].eq(0).all()  # type: ignore[operator]


@pytest.mark.slow
def test_a_module_of_no_hugging_face_class_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="no transformers: pip install 'attnsweep[hf]'")
    space = {"n_steps": 2, "n_categories": 3, "n_positions": 4}
    trained_sweep(tmp_path / "s", SPEC.but(workload="category_pairs", space=space))
    error = export(tmp_path / "s", "hf", tmp_path / "out").exception
    assert (
        "--to hf: got 'a module of the workload category_pairs, of the class PositionsOnly', expected"
        " a transformers.PreTrainedModel"
    ) in str(error)
    assert not (tmp_path / "out").exists()
