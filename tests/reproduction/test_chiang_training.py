"""The figures of Chiang & Cholak on trained transformers, drawn from small sweeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.session import run_sweep
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.reproduction.chiang import fig4
from attnsweep.reproduction.chiang.fig4 import Cell, longest_test_length, read_curves
from attnsweep.reproduction.comparison import Comparison
from attnsweep.reproduction.trained import swept
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep

QUIET = Console(quiet=True)
SMALL = {"n_epochs": 3, "steps_per_epoch": 4, "eval_batch_size": 8, "test_batch_size": 8}


pytestmark = pytest.mark.usefixtures("no_mlflow")


def _small(name: str, directory: Path, lengths: tuple[int, ...], **values: Any) -> SweepDirectory:
    spec = load_sweep(name).fix(SMALL | values)
    space = {**spec.space, "train_length": Categorical(choices=lengths)}
    n_scales = 1 if name == "chiang_fig4_logits" else 2
    spec = spec.but(space=space, replicates=3, trials=n_scales * len(lengths))
    return run_sweep(spec, directory / name, Resources(local=True), QUIET).directory


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    return _small("chiang_fig4", tmp_path_factory.mktemp("first"), (2, 5), longest_test_length=20)


def _drawn(comparison: Comparison, name: str) -> dict[str, list[dict[str, Any]]]:
    """Lists of rows by name; a claim's row may share its name with a cell's."""
    assert [path.name for path in comparison.figures] == [f"{name}.png", f"{name}.svg"]
    assert all(path.stat().st_size > 10_000 for path in comparison.figures)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(comparison.to_json())["rows"]:
        if row["low"] is not None:
            assert row["low"] <= row["ours"] <= row["high"]
        found.setdefault(row["name"], []).append(row)
    return found


def _final(sweep: SweepDirectory, metric: str, length: int, scale: str) -> list[float]:
    ledger = Ledger(sweep.place)
    wanted = {
        row["training_id"]
        for row in ledger.trainings().to_pylist()
        if row["param_train_length"] == length and row["param_attention_scale"] == scale
    }
    rows = [row for row in ledger.curves().to_pylist() if row["metric"] == metric and row["training_id"] in wanted]
    last = max(row["step"] for row in rows)
    return [row["value"] for row in rows if row["step"] == last]


@pytest.mark.scale
@pytest.mark.slow
def test_figure_4_compares_where_the_ledgers_curves_end(first: SweepDirectory, tmp_path: Path) -> None:
    comparison = fig4.compare(first, tmp_path)
    rows = _drawn(comparison, "chiang-fig4")
    assert all(row.low is not None and row.high is not None for row in comparison.rows)
    assert longest_test_length(first) == 20
    bits = _final(first, "cross_entropy_20", 5, "inv_sqrt_d")
    assert len(bits) == 3
    assert rows["unscaled, n = 5: bits, mean of 3"][0]["ours"] == pytest.approx(np.mean(bits))
    shorter, longer = (_final(first, "accuracy_20", length, "inv_sqrt_d") for length in (2, 5))
    [claim] = rows["unscaled, n = 5 above 2, accuracy"]
    assert claim["ours"] == pytest.approx(np.mean(longer) - np.mean(shorter))
    assert claim["agrees"] == (claim["low"] > 0)
    [scaled] = rows["scaled, n = 5: share of seeds below 0.05 bits"]
    assert scaled["published"] == "all at ~0"
    assert scaled["agrees"] is False  # 12 steps teach nothing
    right = _final(first, "accuracy_20", 2, "log_n_query_inv_sqrt_d")
    assert rows["scaled, n = 2: share of seeds with accuracy 1"][0]["ours"] == np.mean(np.array(right) == 1.0)


@pytest.mark.scale
@pytest.mark.slow
def test_equation_2_is_compared_without_unscaled_cells(tmp_path: Path) -> None:
    sweep = _small("chiang_fig4_logits", tmp_path, (2, 5), longest_test_length=20)
    comparison = fig4.compare(sweep, tmp_path)
    rows = _drawn(comparison, "chiang-fig4-logits")
    assert all(name.startswith("scaled, n = ") for name in rows)
    assert len(rows["scaled, n = 2: share of seeds with accuracy 1"]) == 2
    assert comparison.notes[0].startswith("Scaled: log n multiplies the logits")
    assert not comparison.notes[1].startswith("Scaled")


@pytest.mark.scale
@pytest.mark.slow
def test_curves_are_in_the_papers_epochs(first: SweepDirectory) -> None:
    curves = read_curves(first, ["accuracy_20"])
    curve = curves[Cell("inv_sqrt_d", 2), "accuracy_20"]
    assert curve.epochs.tolist() == [0.0, 0.04, 0.08, 0.12]
    assert [len(values) for values in curve.values] == [3, 3, 3, 3]


@pytest.mark.scale
@pytest.mark.slow
def test_parity_is_held_against_chance(tmp_path: Path) -> None:
    sweep = _small("chiang_parity", tmp_path, (2, 3), longest_test_length=6)
    rows = _drawn(fig4.compare_parity(sweep, tmp_path), "chiang-parity")
    assert len(rows) == 2 * 2 * 3
    test = _final(sweep, "accuracy_6", 3, "log_n_query_inv_sqrt_d")
    [row] = rows["scaled, n = 3: accuracy at 6"]
    assert row["ours"] == pytest.approx(np.mean(test))
    assert row["agrees"] == (row["low"] >= 0.4 and row["high"] <= 0.6)
    own = _final(sweep, "accuracy", 2, "inv_sqrt_d")
    assert rows["unscaled, n = 2: seeds that learn it"][0]["ours"] == np.mean(np.array(own) == 1.0)


@pytest.mark.parametrize("name", ["chiang_fig4", "chiang_fig4_logits", "chiang_fig4_long", "chiang_parity"])
def test_the_shipped_sweeps_are_the_figures(name: str) -> None:
    spec = load_sweep(name)
    epochs = {"chiang_fig4_long": 1000}.get(name, 100)
    fixed = spec.fixed()
    assert int(fixed["n_epochs"] or 0) * int(fixed["steps_per_epoch"] or 0) == epochs * 100
    n_seeds = 20 if name == "chiang_parity" else 100
    n_cells = 4 if name == "chiang_fig4_logits" else 8
    assert (spec.trials, spec.replicates, spec.space["stop_when_solved"]) == (n_cells, n_seeds, False)


@pytest.mark.slow
def test_another_sweep_in_the_directory_is_refused(first: SweepDirectory) -> None:
    with pytest.raises(Exception, match="expected a new directory, or one with the sweep chiang_fig4"):
        swept("chiang_fig4", Path(str(first.place)).parent, QUIET)
