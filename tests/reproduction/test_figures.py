"""The figures of Shin & Matzinger, drawn from small sweeps."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.shin import figures
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import load_workload
from tests.refusals import refused

QUIET = Console(quiet=True)


pytestmark = pytest.mark.usefixtures("no_mlflow")


def _small(name: str, directory: Path, **values: int) -> SweepDirectory:
    small = {"n_categories": 3, "n_positions": 4, "batch_size": 32, "n_steps": 40} | values
    sweep = load_sweep(name).fix(small).but(replicates=6)
    return run_sweep(sweep, directory / name, Resources(local=True), QUIET).directory


@pytest.fixture(scope="module")
def flavours(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return _small("shin_flavours", tmp_path_factory.mktemp("flavours"))


def _drawn(comparison: Comparison, name: str) -> None:
    assert [path.name for path in comparison.figures] == [f"{name}.png", f"{name}.svg"]
    assert all(path.stat().st_size > 10_000 for path in comparison.figures)
    for row in json.loads(comparison.to_json())["rows"]:
        assert row.keys() == {"name", "published", "ours", "low", "high", "agrees"}
        assert row["low"] <= row["ours"] <= row["high"]


@pytest.mark.scale
@pytest.mark.slow
def test_figure_1_correlates_what_is_learned_with_the_target(tmp_path: Path) -> None:
    sweep = _small("shin_solution_2", tmp_path, n_steps=80)
    found = figures.compare_fig1(sweep, tmp_path)
    _drawn(found, "shin-fig1")
    matches = sorted(
        row["score_match_logits_target"]
        for row in Ledger(sweep.place).heads().to_pylist()
        if row["step"] == max(r["step"] for r in Ledger(sweep.place).heads().to_pylist() if _same(r, row))
    )
    assert found.rows[0].ours == pytest.approx(np.median(matches))
    assert found.rows[0].agrees == (found.rows[0].low is not None and found.rows[0].low > 0.95)


def _same(one: dict[str, object], other: dict[str, object]) -> bool:
    return one["training_id"] == other["training_id"]


@pytest.mark.scale
@pytest.mark.slow
def test_figure_2_compares_the_flavours_where_they_end(flavours: SweepDirectory, tmp_path: Path) -> None:
    found = figures.compare_fig2(flavours, tmp_path)
    _drawn(found, "shin-fig2")
    ours = {row.name: row.ours for row in found.rows}
    medians = {}
    rows = Ledger(flavours.place).trainings().to_pylist()
    levels = {row["training_id"]: row["level_mean"] for row in rows if row["param_flavour"] == "lean_1"}
    in_training = [
        row["value"] / levels[row["training_id"]]
        for row in Ledger(flavours.place).curves().to_pylist()
        if row["metric"] == "train_mse" and row["step"] == 40 and row["training_id"] in levels
    ]
    name = "log10(training MSE / Var Y), towards solution 1, median"
    assert ours[name] == pytest.approx(np.median(np.log10(in_training)))
    for flavour in figures.FLAVOURS:
        losses = [row["eval_loss"] / row["level_mean"] for row in rows if row["param_flavour"] == flavour]
        medians[flavour] = np.median(np.log10(losses))
    assert ours["lean_2 above lean_1, decades"] == pytest.approx(medians["lean_2"] - medians["lean_1"])
    assert ours["lean_3 above unconstrained, decades"] == pytest.approx(medians["lean_3"] - medians["unconstrained"])


@pytest.mark.scale
@pytest.mark.slow
def test_figure_3_measures_each_flavour_by_the_blocks_of_its_solution(flavours: SweepDirectory, tmp_path: Path) -> None:
    found = figures.compare_fig3(flavours, tmp_path)
    _drawn(found, "shin-fig3")
    assert len(found.rows) == 3 * 4
    by_name = {row.name: row for row in found.rows}
    leaning = {
        row["training_id"] for row in Ledger(flavours.place).trainings().to_pylist() if row["param_flavour"] == "lean_2"
    }
    shares = [
        row["score_share_logits_cc"]
        for row in Ledger(flavours.place).heads().to_pylist()
        if row["training_id"] in leaning and row["step"] == 40
    ]
    assert len(shares) == 6
    assert by_name["towards solution 2: share of |k^t q|^2 on cc"].ours == pytest.approx(np.median(shares))


@pytest.mark.scale
@pytest.mark.slow
def test_a_training_trained_again_ends_where_the_ledger_says(flavours: SweepDirectory) -> None:
    rows = Ledger(flavours.place).trainings().to_pylist()[::7]
    lanes, state = ended_lanes(flavours, [row["training_id"] for row in rows])
    assert [training.seed for training in lanes.trainings] == [row["seed"] for row in rows]
    heads = load_workload("category_pairs").score_heads(lanes, state)
    assert heads is not None
    recorded = {(row["training_id"], row["step"]): row for row in Ledger(flavours.place).heads().to_pylist()}
    for index, row in enumerate(rows):
        last = recorded[row["training_id"], 40]
        assert heads.scores["share_logits_cc"][index, 0, 0] == last["score_share_logits_cc"]


@pytest.mark.scale
@pytest.mark.slow
def test_a_training_that_is_not_there(flavours: SweepDirectory) -> None:
    with refused("TRAINING_ID", UserError):
        ended_lanes(flavours, ["x"])
