"""`attnsweep why`: one page about a training, the same as JSON, and trainings it can say nothing about."""

import json
import sys

import pytest

from attnsweep import Categorical, Ledger, Sweep
from attnsweep.orchestrator import cli
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.trained_sweep import trained_sweep

SPEC = Sweep(
    name="small",
    workload="category_pairs",
    space={
        "n_steps": 20,
        "n_categories": 3,
        "n_positions": 4,
        "init_sigma": Categorical((1e-4, 1e4)),
        "learning_rate": 0.01,
        "attention_activation": Categorical(("identity", "softmax")),
    },
    sampler="grid",
    trials=4,
    replicates=1,
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return trained_sweep(tmp_path_factory.mktemp("why") / "sweep", SPEC)


def asked(
    sweep: SweepDirectory,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> tuple[int, str, str]:
    """The exit code, stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["attnsweep", "why", str(sweep.place), name, "--json"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def of(sweep: SweepDirectory, init_sigma: float, activation: str) -> str:
    for row in Ledger(sweep.place).trainings().to_pylist():
        if (row["param_init_sigma"], row["param_attention_activation"]) == (init_sigma, activation):
            return f"{row['trial']}/0"
    raise AssertionError("no such training")


def test_a_training_at_the_zero_is_starved(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = of(sweep, 1e-4, "identity")
    code, out, page = asked(sweep, name, monkeypatch, capsys)
    assert code == 0
    found = json.loads(out)
    assert (found["outcome"], found["state"]) == ("degenerate_zero", "starved")
    assert [word["word"] for word in found["words"] if word["weight"] == "v_NN" and word["kind"] == "pull"] == [
        "-tr(U' q) (I - P)",
        "-(1' q 1) P",
    ]
    assert found["replay"] == f"attnsweep replay {sweep.place} {name}"
    lines = page.splitlines()
    assert lines[0].startswith(f"{name}  degenerate_zero (zero), loss 1 after 20 steps")
    assert lines[1].startswith("starved: ")
    assert any(line.startswith("loss   ▁▁") and "1 at step 0 to 1 at 20" in line for line in lines)
    assert lines[-1] == f"replay attnsweep replay {sweep.place} {name}"


def test_kept_weights_give_the_same_page(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = of(sweep, 1e-4, "identity")
    before = asked(sweep, name, monkeypatch, capsys)
    keep_weights(sweep, [int(name.partition("/")[0])], lambda _: None)
    assert asked(sweep, name, monkeypatch, capsys) == before


@pytest.mark.parametrize(
    ("init_sigma", "activation", "said"),
    [(1e4, "identity", "which ended as diverged"), (1e-4, "softmax", "whose workload knows the words")],
)
def test_a_training_without_words_is_a_mistake_with_its_reason(
    sweep: SweepDirectory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    init_sigma: float,
    activation: str,
    said: str,
) -> None:
    code, out, err = asked(sweep, of(sweep, init_sigma, activation), monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err
