"""`attnsweep heads`: maps, roles and scores of recorded trainings, also by a user's own lenses."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnsweep import Categorical, Ledger, Sweep, open_sweep, role_rates
from attnsweep.orchestrator.inspection.heads import heads_of
from attnsweep.orchestrator.inspection.kept_weights import keep_weights
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.gpt import GPTWorkload
from attnsweep.workloads.gpt.parameters import GPTParameters
from tests.orchestrator.commands import command
from tests.orchestrator.trained_sweep import records, trained_sweep

SPEC = Sweep(
    name="heads",
    workload="gpt",
    space={
        "init_sigma": Categorical((0.3, 1e30)),
        "n_steps": 2,
        "n_blocks": 2,
        "n_heads": Categorical((1, 2)),
        "eval_batch_size": 4,
    },
    sampler="grid",
    trials=4,
    replicates=2,
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return trained_sweep(tmp_path_factory.mktemp("heads") / "sweep", SPEC)


def name_of(sweep: SweepDirectory, **wanted: Any) -> str:
    row = records(sweep, **wanted)[0]
    return f"{row['trial']}/{row['replicate']}"


def traced(sweep: SweepDirectory, name: str) -> list[torch.Tensor]:
    """The attention (B, H, T, T) of each block on the held-out sequences, by the model itself."""
    trial, replicate = map(int, name.split("/"))
    (row,) = records(sweep, trial=trial, replicate=replicate)
    training = Training(GPTParameters.recorded(row), row["seed"])
    lanes = Lanes([training], torch.device("cpu"))
    module = open_sweep(sweep.place).module(name)
    with torch.no_grad():
        weights: list[torch.Tensor] = module.states(  # type: ignore[operator]
            GPTWorkload().eval_batch(lanes)["token"][0]
        )[1]
    return weights


@pytest.mark.slow
def test_the_command_draws_the_recorded_trainings_heads(
    sweep: SweepDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(sweep, param_init_sigma=0.3, param_n_heads=2)
    monkeypatch.chdir(tmp_path)
    words = ("heads", sweep.place, name, "--sentence", "3", "--json")
    ended = command(*words)
    assert ended.code == 0
    file = Path(f"heads-{name.replace('/', '-')}.png")
    assert file.read_bytes().startswith(b"\x89PNG")
    found = ended.json
    assert (found["sentence"]["number"], found["sentence"]["of"]) == (3, 4)

    trial, replicate = map(int, name.split("/"))
    rows = Ledger(sweep.place).heads().to_pylist()
    last = {
        (row["layer"], row["head"]): row
        for row in rows
        if (row["trial"], row["replicate"], row["step"]) == (trial, replicate, 2)
    }
    attention = traced(sweep, name)
    assert len(last) == 4
    for layer in found["layers"]:
        for head in layer["heads"]:
            row = last[layer["layer"], head["head"]]
            assert head["role"] == row["role"]
            assert head["scores"] == {
                key.removeprefix("score_"): value
                for key, value in row.items()
                if key.startswith("score_") and value is not None
            }
            assert np.allclose(head["weights"], attention[layer["layer"]][3, head["head"]], atol=1e-6)
    lines = ended.err.splitlines()
    assert lines[0].startswith(f"{name}  ")
    assert sum(line.split()[:1] == ["layer"] for line in lines) == 4
    assert lines[-1] == f"maps in {file}"

    keep_weights(sweep, [trial], lambda _: None)
    again = command(*words, "--out", "maps.svg")
    assert (again.code, again.out) == (0, ended.out)
    drawn = Path("maps.svg").read_text()
    assert drawn.startswith("<?xml")
    command(*words, "--out", "maps.svg")
    assert Path("maps.svg").read_text() == drawn


def test_mistakes_leave_nothing_behind(sweep: SweepDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good, diverged = (name_of(sweep, param_init_sigma=sigma) for sigma in (0.3, 1e30))
    place = str(sweep.place)
    for words, told in (
        ((place, good, "--sentence", "4"), "--sentence: got 4, expected 0..3"),
        ((place, good, "--out", "maps.pdf"), "--out: got 'maps.pdf', expected a file name that ends in .png or .svg"),
        ((place, good, "--out", "gone/maps.png"), "--out: got 'gone/maps.png'"),
        ((place, diverged), "with the outcome diverged"),
    ):
        ended = command("heads", *words)
        assert (ended.code, ended.out) == (2, "")
        assert told in ended.err
        assert "Traceback" not in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_workload_without_heads_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = SPEC.but(workload="category_pairs", space={"n_steps": 1, "init_sigma": Categorical((0.1, 0.2))}, trials=2)
    trained_sweep(tmp_path / "sweep", spec)
    monkeypatch.chdir(tmp_path)
    ended = command("heads", "sweep", "0/0")
    assert ended.code == 2


EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "first_word.py"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    spec = load_sweep(str(EXAMPLE))
    space: dict[str, Any] = {**spec.space, "n_steps": Categorical((1, 100)), "init_sigma": 1e-4}
    spec = spec.but(space=space, sampler="grid", trials=2, replicates=1)
    return trained_sweep(tmp_path_factory.mktemp("own") / "sweep", spec)


@pytest.mark.slow
def test_own_roles_maps_and_verdicts_are_shown(own: SweepDirectory) -> None:
    rows = {row["param_n_steps"]: row for row in Ledger(own.place).trainings().to_pylist()}
    ended = {steps: (row["outcome"], row["outcome_detail"]) for steps, row in rows.items()}
    assert ended == {1: ("uniform", None), 100: ("solved", None)}
    names = {steps: f"{row['trial']}/{row['replicate']}" for steps, row in rows.items()}

    found = heads_of(own, names[100])
    (head,) = found.heads
    assert (head.role, [*head.scores]) == ("first", ["first"])
    assert {*found.maps.layers[0].keys} <= {*"abcd"}
    assert head.weights_QK[:, 0].mean() == pytest.approx(head.scores["first"])

    with Ledger(own.place).connect() as connection:
        assert {*role_rates(connection, own.spec)["role"].to_pylist()} == {"first"}
