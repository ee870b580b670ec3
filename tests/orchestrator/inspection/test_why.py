"""`attnsweep why`: what holds a training, the same as JSON, and trainings it can say nothing about."""

import json
from pathlib import Path

import pytest

from attnsweep import Categorical, Ledger, Sweep
from attnsweep.orchestrator.inspection.why import Why
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import smallest_sweep
from tests.orchestrator.trained_sweep import trained_sweep

SPEC = smallest_sweep(
    {
        "init_sigma": Categorical((1e-4, 1e4)),
        "learning_rate": 0.01,
        "attention_activation": Categorical(("identity", "softmax")),
    },
    replicates=1,
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return trained_sweep(tmp_path_factory.mktemp("why") / "sweep", SPEC)


def of(sweep: SweepDirectory, init_sigma: float, activation: str) -> str:
    for row in Ledger(sweep.place).trainings().to_pylist():
        if (row["param_init_sigma"], row["param_attention_activation"]) == (init_sigma, activation):
            return f"{row['trial']}/0"
    raise AssertionError("no such training")


@pytest.mark.slow
def test_a_training_at_the_zero_curves_down_along_both_factors(sweep: SweepDirectory) -> None:
    name = of(sweep, 1e-4, "identity")
    ended = command("why", sweep.place, name, "--json")
    found = ended.json
    assert (ended.code, found["outcome"]) == (0, "degenerate_zero")
    assert found["replay"] == f"attnsweep replay {sweep.place} {name}"
    assert {*found["gradient_norms"]} == {*found["norms"]} == {"q_MK", "v_NN"}
    assert max(found["gradient_norms"].values()) < 0.05
    curvature = found["smallest_curvature"]
    assert curvature["is_negative"]
    # At the zero q and v escape together: the fastest direction of q v has equal shares of both.
    assert curvature["weights"] == pytest.approx({"q_MK": 0.5, "v_NN": 0.5}, abs=1e-3)
    assert found["kick"]["freed_by"] == 0.01
    assert found["kick"]["after"] < 0.95 * found["kick"]["loss"]
    lines = ended.err.splitlines()
    subjects = ["gradient", "curvature", "kicks", "forecast", "certificate", "course"]
    assert [line.partition(":")[0] for line in lines[1:7]] == subjects
    assert "grad_norm" not in lines[6]
    assert lines[-1] == f"replay: attnsweep replay {sweep.place} {name}"


NOISE = """
import attnsweep as at
from torch import nn

def model():
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

def data(draw: at.Draw, batch_size: int = 16):
    return draw.normal(batch_size, 8), draw.normal(batch_size, 1)

noise = at.problem("noise", model=model, data=data, loss="mse", defaults={"optimizer": "adam", "learning_rate": 1e-3})
"""


@pytest.mark.slow
def test_what_fits_one_batch_alone_is_not_freed(tmp_path: Path) -> None:
    """Targets that nothing predicts: L-BFGS learns the batch by heart."""
    (tmp_path / "noise.py").write_text(NOISE)
    spec = Sweep(name="noise", workload=f"{tmp_path / 'noise.py'}:noise", space={"n_steps": 5}, trials=1, replicates=1)
    found = trained_sweep(tmp_path / "sweep", spec)
    ended = command("why", found.place, "0/0", "--json")
    assert (ended.json["kick"]["freed_by"], ended.json["kick"]["by_heart"]) == (None, True)


@pytest.mark.parametrize(
    ("outcome", "escape", "freed_by", "by_heart", "certified", "verdict"),
    [
        ("plateau", None, None, False, None, "not stuck"),
        ("marginal", 100.0, 0.01, False, True, "slow, not stuck"),
        ("runaway", None, 0.01, False, True, "in a valley that falls without an end"),
        ("marginal", 99.0, 0.01, False, True, "held at a saddle, which a small kick frees"),
        ("marginal", float("inf"), 1.0, False, True, "confirmed by its certificate"),
        ("marginal", None, None, False, None, "no small kick frees it"),
        ("marginal", None, None, True, None, "stuck or slow: more steps tell"),
    ],
)
def test_the_verdict_is_the_first_that_holds(
    outcome: str, escape: float | None, freed_by: float | None, by_heart: bool, certified: bool | None, verdict: str
) -> None:
    row = {"training_id": "a", "trial": 0, "replicate": 0, "outcome": outcome, "outcome_detail": None}
    found = Why(
        sweep="s",
        row=row | {"certificate": "promotion", "certified": certified, "stuck": outcome != "plateau", "n_steps": 100},
        learning_rate=0.1,
        difference="",
        weights={},
        gradients={},
        saddle=None,
        loss=1.0,
        kicked=1.0,
        freed_by=freed_by,
        by_heart=by_heart,
        curves={},
        predicted_escape=escape,
    )
    assert json.loads(found.to_json())["verdict"] == verdict
