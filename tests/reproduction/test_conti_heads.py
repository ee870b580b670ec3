"""Conti's Figures 1 and 2, from two very small translators."""

from collections import Counter
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.reproduction.conti import heads
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.trained_sweep import trained_sweep

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
