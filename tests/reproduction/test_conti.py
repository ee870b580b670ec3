"""Conti's tables 6 and 7: draws, the exact optimum below them, the heads' file; Figures 1 and 2 of tiny translators."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.reproduction.conti import heads
from attnsweep.reproduction.conti import tables as conti_tables
from attnsweep.reproduction.conti.tables import (
    COEFFICIENTS,
    TABLE_6,
    TABLE_7,
    VARIABLE,
    compare,
    draw_families,
    load_heads,
)
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.trained_sweep import trained_sweep
from tests.refusals import refused

ROOT = Path(__file__).parents[2]


@pytest.fixture
def thesis_heads(monkeypatch: pytest.MonkeyPatch) -> Tensor:
    monkeypatch.chdir(ROOT)
    try:
        return load_heads()
    except UserError:
        pytest.skip("the thesis's heads are not here (thesis_heads.npy)")


def _noisy_heads() -> Tensor:
    return (3 * torch.randn(8, 16, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).softmax(-1)


def test_draws_are_members_of_their_families_beside_the_noise() -> None:
    T, w, p = 16, 3, 2
    seen = []
    position = torch.arange(T)
    apart = (position - position.unsqueeze(1)).abs()
    for draws in draw_families(T, w, p, n_draws=1):
        seen.append((draws.family, draws.coefficient))
        whole = draws.matrices[draws.matrices.isfinite().all((1, 2))]
        assert torch.allclose(whole.sum(-1), torch.ones(()).double())
        if draws.family == "sigma_2":
            assert ((whole > 0) & (apart > w)).sum((1, 2)).max() <= T
        if draws.coefficient == 0.0:
            if draws.family == "sigma_1":
                assert torch.equal(whole, torch.eye(T).double().expand_as(whole))
            if draws.family == "sigma_2":
                assert not ((whole > 0) & (apart > w)).any()
        if draws.family == "sigma_3" and draws.coefficient == 1.0:
            # A row's largest entry is at least 0.7 / 1.5 of its sum if noise hit the row once.
            column = whole.argmax(-1)
            moved = (column != position) & (position - column < w) & (column < position)
            assert (moved.sum(1) == p * (w - 1)).double().mean() > 0.8
    assert seen == [(family, each) for each in COEFFICIENTS for family in ("sigma_1", "sigma_2", "sigma_3")]


@pytest.mark.slow
def test_no_draw_is_nearer_than_the_exact_optimum() -> None:
    heads = _noisy_heads()
    for table in (TABLE_6, TABLE_7):
        rows = compare(table, heads, [], n_runs=1, n_draws=1).rows
        sampled, exact = rows[:8], rows[8:]
        for drawn, best in zip(sampled, exact, strict=True):
            assert float(best.ours) < float(drawn.ours)
            assert drawn.agrees == (abs(float(drawn.ours) - float(drawn.published or 0)) <= 1)
            assert best.agrees is None


def test_a_head_that_is_a_draw_is_at_distance_0_of_the_exact_and_of_the_draws() -> None:
    heads = torch.stack([torch.eye(16, dtype=torch.float64)] * 8)
    rows = compare(TABLE_6, heads, [], n_runs=1, n_draws=1).rows
    assert {row.ours for row in rows} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("table", [TABLE_6, TABLE_7], ids=["table 6", "table 7"])
def test_the_procedure_gives_what_is_published(table: conti_tables.PublishedTable, thesis_heads: Tensor) -> None:
    # With a third of one run's draws, values are within 2 of the published ones, most within 1.
    rows = compare(table, thesis_heads, [], n_runs=1, n_draws=10).rows[:8]
    off = [abs(float(row.ours) - float(row.published or 0)) for row in rows]
    assert max(off) < 2
    assert sum(each <= 1 for each in off) >= 6


@pytest.mark.scale
@pytest.mark.slow
def test_the_figure_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "heads.npy", _noisy_heads().numpy())
    monkeypatch.setenv(VARIABLE, str(tmp_path / "heads.npy"))
    found = conti_tables.reproduce_table(TABLE_7, tmp_path, Console(quiet=True), n_runs=1, n_draws=1)
    assert [path.name for path in found.figures] == ["conti-table7.png", "conti-table7.svg"]
    assert all(path.stat().st_size > 10_000 for path in found.figures)


def test_heads_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    with refused("ATTNSWEEP_THESIS_HEADS", UserError):
        load_heads()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.npy"))
    with refused("ATTNSWEEP_THESIS_HEADS", UserError):
        load_heads()


def test_heads_of_another_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "thesis_heads.npy", np.eye(3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    with refused("ATTNSWEEP_THESIS_HEADS", UserError):
        load_heads()
    Path("thesis_heads.npy").write_text("no array")
    with refused("ATTNSWEEP_THESIS_HEADS", UserError):
        load_heads()


TINY = {
    "n_nouns": 6,
    "n_names": 4,
    "n_sentences": 32,
    "batch_size": 16,
    "n_epochs": 1,
    "d_model": 16,
    "d_ffn": 16,
    "head_sentences": 20,
    "eval_sentences": 8,
}


@pytest.mark.scale
@pytest.mark.slow
def test_each_translators_heads_are_drawn_and_counted_by_role(tmp_path: Path) -> None:
    sweep = trained_sweep(tmp_path / "sweep", load_sweep("conti_heads").fix(TINY))
    found = heads.compare(sweep, tmp_path, sentence=4)
    assert [path.name for path in found.figures] == [
        f"conti-fig{at}.{form}" for at in (1, 2) for form in ("png", "svg")
    ]
    assert all(path.stat().st_size > 10_000 for path in found.figures)
    last = [row for row in Ledger(sweep.place).heads().to_pylist() if row["step"] == 2]
    n_heads = {row["trial"]: row["param_n_heads"] for row in Ledger(sweep.place).trainings().to_pylist()}
    assert [row.name.split(",")[0] for row in found.rows] == ["1 head"] * 3 + ["8 heads"] * 3
    for at, row in enumerate(found.rows):
        of = [each for each in last if n_heads[each["trial"]] == (1, 8)[at // 3] and each["layer"] == at % 3]
        roles = Counter(each["role"].replace("_", " ") for each in of)
        assert row.ours == ", ".join(f"{role} {n}" for role, n in roles.most_common())
    assert [len(rows) for _, rows in found.tables] == [1 + 3, 1 + 24]
