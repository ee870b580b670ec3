"""The project's own figures, drawn from small sweeps that are trained in this process."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.patches import Rectangle
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.studies import (
    full_models,
    gpt,
    positions,
)
from attnsweep.reproduction.studies.full_models import Judged, by_sigma_figure, clusters_figure, cut_off
from attnsweep.reproduction.studies.gpt import CHANGES, Change, ChangedGPT, reproduce_changes
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine import outcomes
from attnsweep.workloads.engine.contract import Lanes, Training
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.gpt import GPTParameters
from tests.orchestrator.trained_sweep import trained_sweep


def _rows(comparison: Comparison) -> dict[str, ComparedValue]:
    rows = {row.name: row for row in comparison.rows}
    assert len(rows) == len(comparison.rows)
    return rows


def _names(comparison: Comparison) -> list[str]:
    assert all(path.exists() for path in comparison.figures)
    return [path.name for path in comparison.figures]


@pytest.fixture(scope="module")
def stuck_full(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    # One variant and no certificates: two packs.
    small = {"n_categories": 3, "n_positions": 4, "batch_size": 16, "n_steps": 12}
    spec = load_sweep("stuck_full").fix(small | {"variant": "solution_1", "skip": True, "flavour": "unconstrained"})
    spec = spec.but(trials=12, replicates=2, seed=1, certified_share=0.0)
    return trained_sweep(tmp_path_factory.mktemp("full") / "stuck_full", spec, pack_size=24)


@pytest.mark.scale
@pytest.mark.slow
def test_full_models_are_judged_again_as_they_were(stuck_full: SweepDirectory, tmp_path: Path) -> None:
    found = full_models.compare(stuck_full, tmp_path)
    assert _names(found) == [
        f"full_models_{name}.{ending}" for name in ("scatter", "by_sigma") for ending in ("png", "svg")
    ]
    rows, tables = _rows(found), dict(found.tables)
    recorded = Ledger(stuck_full.place).trainings()["outcome"].to_pylist()
    assert rows["trainings judged as recorded"].ours == 1.0
    assert rows["outcome degenerate_zero"].ours == recorded.count("degenerate_zero") / 24 > 0
    by_cut_off = {line[0]: line for line in tables["Share of each outcome with a cut-off halved / as it is / doubled"]}
    assert len(by_cut_off) == 2 + len(full_models.CUT_OFFS)
    share = f" / {recorded.count('degenerate_zero') / 24:.3f} / "
    assert all(share in line[3] for name, line in by_cut_off.items() if name != "cut-off")
    all_trainings = tables["Rates"][1]
    assert all_trainings[:2] == ["all", "24"]
    assert all_trainings[2].startswith(f"{recorded.count('solved') / 24:.3f} [")


@pytest.mark.scale
@pytest.mark.slow
def test_rates_of_a_sweep_over_precision_are_given_for_each(stuck_full: SweepDirectory) -> None:
    judged = Judged(stuck_full)
    for row in judged.rows[: len(judged.rows) // 2]:
        row["param_dtype"] = "float64"
    counts = {line[0]: int(line[1]) for line in full_models._rates(judged, judged.outcome())[1:]}
    sigma = judged.rows[0]["param_init_sigma"]
    at_sigma = [row for row in judged.rows if row["param_init_sigma"] == sigma]
    for dtype in ("float32", "float64"):
        expected = [row for row in at_sigma if row["param_dtype"] == dtype]
        assert counts.get(f"dtype = {dtype}, init_sigma = {sigma}", 0) == len(expected)
    assert counts[f"init_sigma = {sigma}"] == len(at_sigma)


@pytest.mark.scale
@pytest.mark.slow
def test_a_cut_off_is_moved_and_put_back(stuck_full: SweepDirectory) -> None:
    judged = Judged(stuck_full)
    before, value = judged.outcome(), outcomes.STATIONARY_GAMMA
    with cut_off(outcomes, "STATIONARY_GAMMA", 0.0):
        assert "degenerate_zero" not in judged.outcome()
    assert value == outcomes.STATIONARY_GAMMA
    assert (judged.outcome() == before).all()


@pytest.mark.scale
@pytest.mark.slow
def test_the_figures_of_full_models_show_every_training(stuck_full: SweepDirectory) -> None:
    judged = Judged(stuck_full)
    outcome = judged.column("outcome").astype(str)
    left, right = clusters_figure(judged, outcome).axes
    is_free = judged.column("param_attention_activation") == "identity"
    for panel, shown in ((left, int(is_free.sum())), (right, 24)):
        clusters = [line for line in panel.get_lines() if line.get_marker() == "o"]
        assert sum(np.asarray(line.get_xdata()).size for line in clusters) == shown
    for panel in by_sigma_figure(judged, outcome).axes:
        tops: dict[float, float] = {}
        for bar in panel.patches:
            assert isinstance(bar, Rectangle)
            tops[bar.get_x()] = tops.get(bar.get_x(), 0.0) + bar.get_height()
        # The sweep has no training without the skip.
        assert max(tops.values()) == (0.0 if "no skip" in panel.get_title() else pytest.approx(1.0))


@pytest.mark.scale
def test_zeros_are_kicked(stuck_full: SweepDirectory) -> None:
    rows = full_models.compare_kicks(stuck_full, 1).rows
    assert [row.name for row in rows] == [f"zeros freed by a kick of {size} or less" for size in ("0.01", "0.1", "1")]
    assert rows[-1].ours == 1.0


@pytest.mark.scale
def test_positions_leave_the_zero_as_derived(tmp_path: Path) -> None:
    size = positions.Size(
        n_passing=8, n_valley=16, n_softmax=2, passing_steps=400, valley_time=0.3, valley_steps=300, softmax_steps=300
    )
    found = positions.reproduce(tmp_path, Console(quiet=True), size)
    assert _names(found) == [
        f"positions_{name}.{ending}" for name in ("plateaus", "valley", "softmax") for ending in ("png", "svg")
    ]
    rows = _rows(found)
    for name, derived in (("N = 10, M = 20", 174), ("N = 3, M = 40", 52)):
        row = rows[f"{name}: step at which the zero is left"]
        assert row.published == f"{derived} (derived)"
        assert row.ours == pytest.approx(derived, rel=0.4)
    assert rows["init_sigma 0.1, learning rate 0.03, 10 steps: runaway"].low is not None


def test_a_stage_ends_where_the_loss_crosses_its_level() -> None:
    steps = np.array([0.0, 5.0, 10.0, 15.0])
    assert gpt.falls_below(steps, np.array([2.0, 1.0, 0.5, 0.6]), 0.75) == 7.5
    assert gpt.falls_below(steps, np.array([0.5, 1.0, 0.5, 0.6]), 0.75) == 0.0
    assert gpt.falls_below(steps, np.array([2.0, 1.0, 0.9, 0.8]), 0.75) == np.inf


@pytest.mark.scale
@pytest.mark.slow
def test_stages_of_a_gpt_are_timed(tmp_path: Path) -> None:
    small = {"n_steps": 40, "batch_size": 8, "eval_batch_size": 32, "d_model": 8, "tied": False, "layer_norm_eps": 1e-5}
    spec = load_sweep("gpt_stages").fix(small).but(trials=8, replicates=2, seed=1)
    sweep = trained_sweep(tmp_path / "gpt_stages", spec, pack_size=16)
    found = gpt.compare_stages(sweep, tmp_path)
    assert _names(found) == ["gpt_stages.png", "gpt_stages.svg"]
    rows = _rows(found)
    first = rows["first stage, init_sigma 0.0001 over 0.001"]
    assert first.low is not None
    assert first.low < float(first.ours)
    ((_, table),) = found.tables
    assert len(table) == 1 + 2 * 2
    stages = gpt.stages_of(sweep)
    assert {len(each.first) for each in stages.values()} == {2}
    # A first stage lasts longer where nothing is known at the start.
    large, small_sigma = (
        np.median([step for cell, each in stages.items() if cell.init_sigma == sigma for step in each.first])
        for sigma in (1e-1, 1e-4)
    )
    assert large < small_sigma


VALUES = {"task": "induction", "n_tokens": 8, "d_model": 8, "n_blocks": 2, "dtype": "float64", "n_steps": 1}


NOTHING = Change(row="nothing", values={})


def _training() -> Training[GPTParameters]:
    return Training(GPTParameters.resolve(VALUES), 3)


def _started(change: Change) -> State:
    workload, lanes = ChangedGPT(change), Lanes([_training()], torch.device("cpu"))
    return workload.read(workload.initial(workload.build(lanes.shared), lanes))


def _stepped(change: Change) -> State:
    workload, training = ChangedGPT(change), _training()
    pack = Pack(workload, [training])
    pack.train_to_end()
    return workload.read(pack.final_state(np.arange(1))[1])


@pytest.fixture(scope="module")
def unchanged() -> State:
    return _stepped(NOTHING)


def test_steps_of_a_part_are_shorter_from_the_same_start(unchanged: State) -> None:
    change = Change(row="shorter", values={}, steps={"token": 0.1})
    start, end = _started(NOTHING), _stepped(change)
    for name in start:
        factor, step = 0.1 if name == "token.weight" else 1.0, unchanged[name] - start[name]
        # Adam adds 1e-8 to the root of gradients, which are as many times smaller.
        torch.testing.assert_close(end[name] - start[name], factor * step, rtol=1e-3, atol=1e-9)


def test_a_part_starts_larger() -> None:
    change = Change(row="larger", values={}, start={"attention.out": 10})
    start, larger = _started(NOTHING), _started(change)
    changed = {name for name, value in start.items() if not torch.equal(value, larger[name])}
    assert changed == {name for name in start if "attention.out" in name}
    for name in changed:
        torch.testing.assert_close(larger[name], 10 * start[name])


def test_a_part_is_left_out(unchanged: State) -> None:
    end = _stepped(Change(row="without", values={}, steps={"ffn.second.bias": 0}))
    assert unchanged["blocks.0.ffn.second.bias"].any()
    assert not end["blocks.0.ffn.second.bias"].any()


@pytest.mark.slow
def test_each_change_has_a_row() -> None:
    rows = reproduce_changes(Path(), Console(file=io.StringIO()), n_seeds=2, n_steps=1).rows
    assert [row.name for row in rows] == [change.row for change in CHANGES]
    assert {row.ours for row in rows} == {0.0}
