"""What statements read of the trainings: roles of heads, and what was measured at the end."""

from pathlib import Path

import pyarrow as pa
import pytest

from attnsweep.orchestrator.analysis.verdict import read_verdict
from attnsweep.orchestrator.analysis.verdict_rows import by_group, end, read_rows, sample
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import heads_schema
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.annotation import Annotation
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.claim import Claim
from attnsweep.workloads.errors import SpecError
from tests.orchestrator.head_rows import ROLE_SCORES, head_rows
from tests.orchestrator.small_sweep import SCHEMAS, TRAININGS, curve_rows, trial_rows
from tests.search_spaces.test_claim import claim

# Probes are at the steps 0, 1, 2, 4 and 8. One letter for each of them: positional, or no role.
COMES_AT_2, COMES_AND_GOES, TOO_LATE, HAS_NONE = "..ppp", ".p.p.", "....p", "....."
DIVERGED_LOSSES = [10.0, 9.0, 8.0]
"""Curves hold finite values alone."""


def on_disk(path: Path, one: Claim) -> SweepDirectory:
    """Four trainings, of which the last diverged, with a head each in layers 0 and 1."""
    rows = trial_rows(0, ["plateau", "plateau", "solved", "diverged"], param_init_sigma=0.001, param_n_steps=8)
    lines = (COMES_AT_2, COMES_AND_GOES, TOO_LATE, COMES_AT_2)
    heads = [
        head for row, line in zip(rows, lines, strict=True) for head in head_rows(row, {(0, 0): HAS_NONE, (1, 0): line})
    ]
    schema = heads_schema(ROLE_SCORES)
    directory = SweepDirectory.create(path, one.sweep(), {}, annotation=Annotation(claim=one))
    with LedgerWriter(directory.place, SCHEMAS | {"heads": schema}, directory.spec_sha256) as writer:
        writer.commit(
            "p",
            pa.Table.from_pylist([{name: row.get(name) for name in TRAININGS.names} for row in rows], TRAININGS),
            pa.Table.from_pylist(curve_rows(rows, {3: DIVERGED_LOSSES}), SCHEMAS["curves"]),
            pa.Table.from_pylist([{f"score_{name}": 0.5 for name in ROLE_SCORES} | head for head in heads], schema),
        )
    return directory


def stating(text: str) -> Claim:
    return claim(
        groups={"small": {"init_sigma": 0.001}},
        states=(text,),
        fixed={"n_steps": 8},
        batch=4,
        workload="category_pairs",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rate(role positional, small) > 0.5", [True, False, False, False]),
        ("rate(role positional in 1 by 2, small) > 0.5", [True, False, False, False]),
        ("rate(role positional in 1 by 1, small) > 0.5", [False, False, False, False]),
        ("rate(role positional in 0, small) > 0.5", [False, False, False, False]),
        ("rate(role syntactic, small) > 0.5", [False, False, False, False]),
        ("median(role positional, small) < 5", [2.0, float("inf"), float("inf"), float("inf")]),
        ("rate(value eval_loss above 2.5, small) > 0.5", [False, True, True, False]),
        ("rate(value eval_loss below 3.5, small) > 0.5", [True, True, False, False]),
        ("median(value eval_loss, small) < 5", [2.0, 3.0, 4.0, float("inf")]),
    ],
)
def test_roles_and_values_are_told_from_the_ledger(tmp_path: Path, text: str, expected: list[object]) -> None:
    one = stating(text)
    directory = on_disk(tmp_path / "s", one)
    rows = by_group(one, read_rows(Ledger(directory.place), one))["small"]
    assert sample(one.statements[0].quantities[0], rows).tolist() == expected
    assert read_verdict(directory, one).n_trainings == 4


def test_a_role_counts_as_not_come_after_the_last_probe_that_a_later_one_confirms(tmp_path: Path) -> None:
    one = stating("median(role positional, small) < 5")
    rows = by_group(one, read_rows(Ledger(on_disk(tmp_path / "s", one).place), one))["small"]
    (quantity,) = one.statements[0].quantities
    assert end(quantity, rows) == 4
    (event,) = stating("median(solved, small) < 5").statements[0].quantities
    assert end(event, rows) == 8
    (value,) = stating("median(value eval_loss, small) < 5").statements[0].quantities
    assert end(value, rows) == float("inf")


def test_a_metric_that_no_training_has_is_refused(tmp_path: Path) -> None:
    one = stating("median(value eval_los, small) < 5")
    with pytest.raises(SpecError, match="did you mean eval_loss"):
        read_rows(Ledger(on_disk(tmp_path / "s", one).place), one)
