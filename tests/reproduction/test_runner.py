"""The runner of the catalog: the sweep behind an entry, and its rows, from small sweeps beside numbers by hand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.catalog import REPRODUCTIONS
from attnsweep.reproduction.comparison import ComparedValue
from attnsweep.reproduction.runner import compared, spec_of, swept
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.trained_sweep import trained_sweep
from tests.refusals import refused

BY_NAME = {each.name: each for each in REPRODUCTIONS}
QUIET = Console(quiet=True)


def test_a_directory_with_another_sweep_of_that_name_is_refused(tmp_path: Path) -> None:
    sweep_on_disk(tmp_path / "shin_flavours", small_sweep("shin_flavours"))
    with refused("--dir", UserError):
        swept(BY_NAME["shin-fig2"], tmp_path, QUIET)


def test_a_finished_sweep_of_any_seed_is_read_without_training(tmp_path: Path) -> None:
    spec = load_sweep("quickstart").but(seed=5)
    made = sweep_on_disk(tmp_path / "quickstart", spec, trial_rows(0, ["solved"]))
    made.record_run(finished=True, seconds=1.0)
    assert swept(replace(BY_NAME["shin-fig1"], sweep="quickstart"), tmp_path, QUIET).finished


def test_the_full_size_is_that_of_the_publication() -> None:
    flavours, histogram = (spec_of(BY_NAME[name].chosen(full=True)) for name in ("shin-fig2", "behrens-histogram"))
    assert flavours == load_sweep("shin_flavours_full")
    assert flavours.fixed()["n_positions"] == 50
    assert (histogram.name, histogram.trials, histogram.replicates) == ("histogram_full", 3 * 14 * 14, 5)
    assert histogram.space["mixing"] == Categorical(("bos", "dot", "lin"))
    with refused("--full", UserError):
        BY_NAME["shin-handmade"].chosen(full=True)


PAIRS = {"n_categories": 3, "n_positions": 4, "batch_size": 32, "n_steps": 40}
STRINGS = {"n_epochs": 3, "steps_per_epoch": 4, "eval_batch_size": 8, "test_batch_size": 8}
FIRST = {**STRINGS, "train_length": Categorical((2, 5)), "longest_test_length": 20}
PLATEAU = {"d_model": 8, "length": 4, "n_numbers": 3, "batch_size": 8, "n_steps": 40}
TRANSLATOR = {
    **{"n_epochs": 1, "d_model": 16, "d_ffn": 16, "n_heads": 2, "n_sentences": 64, "batch_size": 16},
    **{"eval_sentences": 16, "head_sentences": 0, "test_sentences": 24},
}
SMALL: Mapping[str, tuple[dict[str, Any], dict[str, int]]] = {
    "shin_solution_2": (PAIRS, {"replicates": 6}),
    "shin_flavours": (PAIRS, {"replicates": 6}),
    "chiang_fig4": (FIRST, {"replicates": 3, "trials": 4}),
    "chiang_fig4_logits": (FIRST, {"replicates": 3, "trials": 2}),
    "chiang_parity": (FIRST | {"longest_test_length": 6}, {"replicates": 3, "trials": 4}),
    "translation_lengths": (TRANSLATOR, {"replicates": 2}),
    "gpt_stages": ({"n_steps": 40, "batch_size": 8, "eval_batch_size": 32, "d_model": 8}, {"replicates": 2}),
    "in_context_regression": ({"n_steps": 60, "n_heads": 2, "attention_scale": 1.0}, {"replicates": 2, "trials": 6}),
    "markov_chains": ({"n_context": 8, "batch_size": 4, "n_steps": 20}, {"replicates": 2}),
    "abrupt_learning": (PLATEAU, {"replicates": 3}),
    "abrupt_learning_starts": (PLATEAU, {"replicates": 2}),
    "abrupt_learning_tasks": (PLATEAU, {"replicates": 2}),
    "histogram": ({"n_steps": 2, "d_model": Categorical((3, 8)), "d_ffn": Categorical((3, 8))}, {"trials": 8}),
    "modular_addition": ({"p": 7, "n_steps": 60}, {"replicates": 3}),
    "modular_addition_data": ({"p": 7, "n_steps": 60}, {"replicates": 3}),
    "sparse_parity": (
        {"n_bits": Categorical((4, 6)), "k": Categorical((2, 3)), "n_steps": 300},
        {"replicates": 4, "trials": 4},
    ),
}
Small = Callable[[str], SweepDirectory]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    made: dict[str, SweepDirectory] = {}

    def trained(name: str) -> SweepDirectory:
        if name not in made:
            values, budget = SMALL[name]
            spec = load_sweep(name)
            spec = spec.but(space={**spec.space, **values}, certified_share=0.0, **({"replicates": 2} | budget))
            made[name] = trained_sweep(tmp_path_factory.mktemp(name) / name, spec, pack_size=24)
        return made[name]

    return trained


def _rows(name: str, small: Small, directory: Path) -> dict[str, ComparedValue]:
    entry = BY_NAME[name]
    found = compared(entry, small(entry.sweep), directory)
    assert len(found.figures) == 2 * len(entry.figures)
    assert all(path.stat().st_size > 5_000 for path in found.figures)
    found.to_json()
    rows = {row.name: row for row in found.rows}
    assert len(rows) == len(found.rows)
    for row in rows.values():
        assert row.low is None or row.high is None or row.low <= float(row.ours) <= row.high
    return rows


N_ROWS = {
    **{"chiang-fig4-logits": 8, "chiang-table1": 6, "zhang-regression": 6, "gopalani-starts": 4, "gopalani-tasks": 7},
    **{"behrens-histogram": 8, "power-data": 11, "barak-parity": 6},
}


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.parametrize("name", N_ROWS)
def test_an_entry_has_its_rows_and_figures(name: str, small: Small, tmp_path: Path) -> None:
    assert len(_rows(name, small, tmp_path)) >= N_ROWS[name]


def _ends(sweep: SweepDirectory, metric: str, **wanted: Any) -> list[float]:
    """The last values of a metric in the trainings with these parameters."""
    ids = {
        row["training_id"]
        for row in Ledger(sweep.place).trainings().to_pylist()
        if all(row[f"param_{name}"] == value for name, value in wanted.items())
    }
    rows = [row for row in Ledger(sweep.place).curves().to_pylist() if row["training_id"] in ids]
    last = max(row["step"] for row in rows)
    return [row["value"] for row in rows if (row["metric"], row["step"]) == (metric, last)]


@pytest.mark.scale
@pytest.mark.slow
def test_shin_figures_compare_the_trainings_where_they_end(small: Small, tmp_path: Path) -> None:
    sweep = small("shin_flavours")
    rows = _rows("shin-fig2", small, tmp_path)
    trainings = Ledger(sweep.place).trainings().to_pylist()
    level = {row["param_flavour"]: row["level_mean"] for row in trainings}
    worse, better = (
        np.median([np.log10(row["eval_loss"] / row["level_mean"]) for row in trainings if row["param_flavour"] == name])
        for name in ("lean_2", "lean_1")
    )
    assert rows["lean_2 above lean_1, decades"].ours == pytest.approx(worse - better)
    assert rows["log10(test MSE / Var Y), towards solution 2, median"].ours == pytest.approx(worse)
    assert len(level) == 4
    blocks = _rows("shin-fig3", small, tmp_path)
    assert len(blocks) == 3 * 4
    ids = {row["training_id"] for row in trainings if row["param_flavour"] == "lean_2"}
    shares = [
        row["score_share_logits_cc"]
        for row in Ledger(sweep.place).heads().to_pylist()
        if row["training_id"] in ids and row["step"] == 40
    ]
    assert blocks["towards solution 2: share of |k^t q|^2 on cc"].ours == pytest.approx(np.median(shares))
    match = _rows("shin-fig1", small, tmp_path)["|correlation| of k^t q with q*, median of 6 seeds"]
    assert match.agrees == (match.low is not None and match.low > 0.95)


@pytest.mark.scale
@pytest.mark.slow
def test_chiang_figure_4_compares_the_trainings_where_they_end(small: Small, tmp_path: Path) -> None:
    sweep, rows = small("chiang_fig4"), _rows("chiang-fig4", small, tmp_path)
    unscaled = {"attention_scale": "inv_sqrt_d"}
    bits = _ends(sweep, "cross_entropy_20", train_length=5, **unscaled)
    assert rows["unscaled, n = 5: bits, mean of 3"].ours == pytest.approx(np.mean(bits))
    shorter, longer = (_ends(sweep, "accuracy_20", train_length=length, **unscaled) for length in (2, 5))
    claim = rows["unscaled, n = 5 above 2, accuracy"]
    assert claim.ours == pytest.approx(np.mean(longer) - np.mean(shorter))
    assert claim.agrees == (claim.low is not None and claim.low > 0)
    right = _ends(sweep, "accuracy_20", train_length=2, attention_scale="log_n_query_inv_sqrt_d")
    assert rows["scaled, n = 2: share of seeds with accuracy 1"].ours == np.mean(np.array(right) == 1.0)
    parity = _rows("chiang-parity", small, tmp_path)
    assert len(parity) == 2 * 2 * 3
    test = _ends(small("chiang_parity"), "accuracy_6", train_length=5, attention_scale="log_n_query_inv_sqrt_d")
    assert parity["scaled, n = 5: accuracy at 6"].ours == pytest.approx(np.mean(test))


@pytest.mark.scale
@pytest.mark.slow
def test_stages_of_chains_are_counted_where_trainings_got_there(small: Small, tmp_path: Path) -> None:
    rows = _rows("edelman-markov", small, tmp_path)
    trainings = Ledger(small("markov_chains").place).trainings().to_pylist()
    steps = [row["event_unigram"] for row in trainings if (row["param_n_states"], row["param_chains"]) == (2, "any")]
    if None not in steps:
        assert rows["2 states, any: steps to unigrams"].ours == pytest.approx(np.median(steps))
    assert rows["3 states, any: bigrams within n_steps"].low is not None


@pytest.mark.scale
@pytest.mark.slow
def test_a_plateau_that_is_not_left_counts_with_its_last_step(small: Small, tmp_path: Path) -> None:
    rows = _rows("gopalani-plateau", small, tmp_path)
    trainings = Ledger(small("abrupt_learning").place).trainings().to_pylist()
    lengths = [
        40 if row["event_plateau_left"] is None else row["event_plateau_left"]
        for row in trainings
        if row["param_optimal_scale"] == 10.0
    ]
    assert rows["c = 10: steps on the plateau, median"].ours == np.median(lengths)


@pytest.mark.scale
@pytest.mark.slow
def test_half_of_the_trainings_have_an_event_or_not(small: Small, tmp_path: Path) -> None:
    rows = _rows("manir-weight-decay", small, tmp_path)
    memorized = rows["weight_decay 1: half have memorized, step"]
    share = rows["weight decay 1: memorized"]
    assert (memorized.ours == "not reached") == (float(share.ours) < 0.5)


@pytest.mark.scale
@pytest.mark.slow
def test_stages_of_a_gpt_end_between_probes(small: Small, tmp_path: Path) -> None:
    rows = _rows("gpt-stages", small, tmp_path)
    first = rows["first stage, init_sigma 0.01 over 0.1"]
    assert first.low is not None
    assert first.low < float(first.ours)
