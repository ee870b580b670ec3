"""Verdicts: which rows count, and what decides."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from attnsweep.orchestrator.analysis.verdict import Evidence, power, together, verdict
from attnsweep.orchestrator.analysis.verdict_rows import columns
from attnsweep.search_spaces.claim import Claim
from attnsweep.workloads.errors import UserError
from tests.search_spaces.test_claim import claim

SIZES = (16, 32, 48)


def rows(of_small: Sequence[str], of_large: Sequence[str], **given: Any) -> pa.Table:
    """Trainings of the two groups, by their outcomes."""
    found = [
        {"replicate": at, "outcome": outcome, "stuck": False, "onset_step": at + 1, "param_init_sigma": sigma}
        | {"param_n_steps": 100}
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
    assert (alike.decision, [look.n for look in alike.looks]) == ("undecided", [16, 32, 48])
    assert json.loads(alike.to_json())["verdict"] == "undecided"


def test_a_look_needs_the_first_trainings_of_every_group() -> None:
    small, large = ["plateau"] * 16, ["solved"] * 16
    assert verdict(claim(), rows(small, large[:15]), SIZES).looks == ()
    table = rows(small * 3, large * 3)
    without_one = verdict(claim(), table.filter(pa.compute.field("replicate") != 3), SIZES)
    assert (without_one.decision, without_one.n_trainings) == ("undecided", 0)


def test_failed_trainings_count_as_if_they_had_not_been_drawn() -> None:
    found = verdict(claim(), rows(["failed"] * 4 + ["plateau"] * 12, ["solved"] * 16), (16,))
    assert (found.n_failed, [each.n for each in found.statements[0].measured]) == (4, [12, 16])
    assert found.decision == "supported"
    failed = verdict(claim(), rows(["failed"] * 16, ["failed"] * 16), (16,))
    assert (failed.decision, failed.n_failed) == ("undecided", 32)


def test_rows_of_no_group_are_refused() -> None:
    table = rows(["solved"], ["solved"])
    sigmas = pa.array([0.5, 0.001])
    strange = table.set_column(table.schema.get_field_index("param_init_sigma"), "param_init_sigma", sigmas)
    with pytest.raises(UserError, match=r"init_sigma=0\.5"):
        verdict(claim(), strange, SIZES)


def test_all_statements_must_be_supported_and_evidence_against_any_refutes() -> None:
    found = together([Evidence(math.log(100), math.log(0.01)), Evidence(math.log(5), math.log(0.2))])
    assert found.decision(0.95) == "undecided"
    # The mean of the two e-values against: 0.5 (0.01 + 41).
    refuted = together([Evidence(math.log(100), math.log(0.01)), Evidence(math.log(0.02), math.log(41))])
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
    table = rows(["solved"] * 20, [], event_fits=fits, event_adds=[None] * 48)
    assert {*columns(one)} - {"trial", "event_fits", "event_adds"} <= {*table.column_names}
    assert verdict(one, table, (20,)).decision == decision


def test_a_wider_margin_takes_fewer_trainings() -> None:
    found = power(claim(budget=256), 20)
    assert [each.margin for each in found] == [0.05, 0.1, 0.2, 0.4]
    assert found[0].share < found[-1].share == 1
    assert found[-1].n_most is not None
    assert found[-1].n_most <= 192
    # A rate cannot be 0.1 below 0.08.
    rare: Claim = claim(groups={"small": {"init_sigma": 0.1}}, states=("rate(stuck, small) < 0.08",), budget=256)
    assert [each.margin for each in power(rare, 20)] == [0.05]
    medians = power(claim(states=("median(solved, small) > 2 * median(solved, large)",), budget=128), 20)
    assert medians[-1].share == 1
    assert np.isfinite(medians[-1].n_most or math.inf)
