"""Verdicts: what statements read of the trainings, which rows count, and what decides."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from attnsweep.orchestrator.analysis.verdict import Evidence, combined, read_verdict, verdict
from attnsweep.orchestrator.analysis.verdict_rows import by_group, last_step, read_rows, sample
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import heads_schema
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces.claim import Claim
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
    directory = SweepDirectory.create(path, one.sweep(), {}, claim=one)
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
    assert last_step(quantity, rows) == 4
    (event,) = stating("median(solved, small) < 5").statements[0].quantities
    assert last_step(event, rows) == 8
    (value,) = stating("median(value eval_loss, small) < 5").statements[0].quantities
    assert last_step(value, rows) == float("inf")


SIZES = (16, 32, 48)


def rows(of_small: Sequence[str], of_large: Sequence[str], **given: Any) -> pa.Table:
    """Trainings of the two groups, by their outcomes."""
    found = [
        {"replicate": at, "outcome": outcome, "stuck": False, "param_init_sigma": sigma, "param_n_steps": 100}
        | {"onset_step": at + 1, "before_onset_step": at}
        | {name: values[at] for name, values in given.items()}
        for sigma, outcomes in ((0.001, of_small), (1.0, of_large))
        for at, outcome in enumerate(outcomes)
    ]
    # Whatever their order is.
    return pa.Table.from_pylist(found[::-1])


def test_the_first_look_that_decides_is_the_verdict() -> None:
    small, large = ["plateau"] * 48, ["solved"] * 48
    found = verdict(claim(), rows(small, large), SIZES)
    assert (found.decision, found.n_trainings, len(found.looks)) == ("supported", 32, 1)
    assert [str(each) for each in found.statements[0].measured] == [
        "small 0.00 [0.00, 0.27] of 16",
        "large 1.00 [0.73, 1.00] of 16",
    ]
    assert verdict(claim(), rows(large, small), SIZES).decision == "refuted"
    # What came after it does not change it.
    assert verdict(claim(), rows(small[:16] + large[:32], large[:16] + small[:32]), SIZES).decision == "supported"
    alike = verdict(claim(), rows(large, large), SIZES)
    assert (alike.decision, [*alike.looks]) == ("undecided", [16, 32, 48])
    assert json.loads(alike.to_json())["verdict"] == "undecided"


def test_a_look_needs_the_first_trainings_of_every_group() -> None:
    small, large = ["plateau"] * 16, ["solved"] * 16
    assert verdict(claim(), rows(small, large[:15]), SIZES).looks == {}
    table = rows(small * 3, large * 3)
    without_one = verdict(claim(), table.filter(pa.compute.field("replicate") != 3), SIZES)
    assert (without_one.decision, without_one.n_trainings) == ("undecided", 0)


def test_failed_trainings_count_as_if_they_had_not_been_drawn() -> None:
    found = verdict(claim(), rows(["failed"] * 4 + ["plateau"] * 12, ["solved"] * 16), (16,))
    assert (found.n_failed, [each.n for each in found.statements[0].measured]) == (4, [12, 16])
    assert found.decision == "supported"
    failed = verdict(claim(), rows(["failed"] * 16, ["failed"] * 16), (16,))
    assert (failed.decision, failed.n_failed) == ("undecided", 32)


def test_all_statements_must_be_supported_and_evidence_against_any_refutes() -> None:
    found = combined([Evidence(math.log(100), math.log(0.01)), Evidence(math.log(5), math.log(0.2))])
    assert found.decision(0.95) == "undecided"
    # The mean of the two e-values against: 0.5 (0.01 + 41).
    refuted = combined([Evidence(math.log(100), math.log(0.01)), Evidence(math.log(0.02), math.log(41))])
    assert refuted.contra == pytest.approx(math.log(0.5 * 41.01))
    assert refuted.decision(0.95) == "refuted"
    assert refuted.decision(0.99) == "undecided"


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        ("rate(event fits, small) < 0.9", "undecided"),
        ("rate(event fits by 3, small) < 0.5", "supported"),
        ("rate(event fits before adds, small) > 0.5", "supported"),
        ("rate(event adds before fits, small) > 0.5", "refuted"),
        ("median(event fits, small) < 60", "supported"),
        ("median(event fits, small) > 60", "refuted"),
        ("median(event adds, small) > 99", "supported"),
        ("median(solved, small) < 20", "supported"),
    ],
)
def test_events_and_steps_are_told_from_the_rows(state: str, decision: str) -> None:
    one = claim(groups={"small": {"init_sigma": 0.001}}, states=(state,))
    fits = [*range(1, 49)]
    events = {"event_fits": fits, "before_event_fits": [at - 1 for at in fits], "event_adds": [None] * 48}
    table = rows(["solved"] * 20, [], **events, before_event_adds=[100] * 48)
    assert verdict(one, table, (20,)).decision == decision


@pytest.mark.parametrize(
    ("state", "decision"),
    [
        ("median(event fits, small) < 45", "undecided"),
        ("median(event fits, small) < 60", "supported"),
        ("median(event fits, small) > 45", "undecided"),
        ("median(event fits, small) > 30", "supported"),
        ("rate(event fits by 45, small) > 0.5", "undecided"),
        ("rate(event fits by 45, small) < 0.5", "undecided"),
        ("rate(event fits by 50, small) > 0.5", "supported"),
        ("rate(event fits by 40, small) < 0.5", "supported"),
    ],
)
def test_a_step_between_two_probes_decides_nothing_that_depends_on_it(state: str, decision: str) -> None:
    one = claim(groups={"small": {"init_sigma": 0.001}}, states=(state,))
    table = rows(["solved"] * 40, [], event_fits=[50] * 40, before_event_fits=[40] * 40)
    assert verdict(one, table, (40,)).decision == decision
