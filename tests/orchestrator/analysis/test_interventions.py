"""Ratios from pairs: a planted ratio is found, a planted absence is not, and who is whose pair."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.interventions import interventions, paired_ratio, ratio_label
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.reader import Ledger
from tests.orchestrator.head_rows import head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import small_sweep, trial_rows

_PROBES = np.unique(np.geomspace(1, 1_000, 60).astype(int))


def _pair(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> Row:
    return paired_ratio(np.array(one), np.array(other))


def _simulated(generator: np.random.Generator, n: int, ratio: float) -> Row:
    """Pairs that differ much from each other, seen at probes, and censored at the last one."""
    baseline = 300 * np.exp(generator.normal(size=n))

    def seen(rate: float) -> NDArray[np.int64]:
        at = np.searchsorted(_PROBES, generator.exponential(baseline / rate))
        came = at < len(_PROBES)
        step = _PROBES[np.minimum(at, len(_PROBES) - 1)]
        return np.stack([step, came.astype(np.int64)], 1)

    return paired_ratio(seen(ratio), seen(1.0))


@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
def test_the_interval_covers_a_planted_ratio_and_a_planted_absence(ratio: float) -> None:
    generator = np.random.default_rng(5)
    found = [row for _ in range(400) if (row := _simulated(generator, 64, ratio))["low"] is not None]
    assert np.mean([each["low"] <= ratio <= (each["high"] or np.inf) for each in found]) > 0.94
    shown = np.mean([not each["low"] <= 1 <= (each["high"] or np.inf) for each in found])
    assert shown < 0.06 if ratio == 1 else shown > 0.7


def test_a_pair_says_which_is_known_to_be_first() -> None:
    sooner, later, tie = ((5, 1), (9, 1)), ((9, 1), (5, 1)), ((5, 1), (5, 1))
    censored_later, censored_before = ((5, 1), (5, 0)), ((5, 1), (4, 0))
    found = _pair(*map(list, zip(sooner, later, tie, censored_later, censored_before, strict=True)))
    assert (found["n_pairs"], found["n_with"], found["n_without"]) == (5, 5, 3)
    assert (found["median_with"], found["median_without"]) == (5, 5)
    assert (found["n_sooner"], found["n_later"], found["ratio"]) == (2, 1, 2.0)
    assert ratio_label(found) == "2 [0.1, 118]"


def test_pairs_of_one_kind_have_an_open_interval() -> None:
    never = _pair([(9, 0)] * 20, [(5, 1)] * 20)
    assert (never["ratio"], never["low"], ratio_label(never)) == (0.0, 0.0, "0 [0, 0.2]")
    always = _pair([(5, 1)] * 20, [(9, 0)] * 20)
    assert (always["ratio"], always["high"], ratio_label(always)) == (None, None, "∞ [4.9, ∞]")
    assert (never["median_with"], never["median_without"]) == (None, 5)
    assert ratio_label(_pair([(5, 1)], [(5, 1)])) == "-"


def test_pairs_have_the_same_seed_and_differ_in_the_intervention_alone(tmp_path: Path) -> None:
    rows = [
        {**row, "seed": seed, "param_intervention": text, "param_learning_rate": rate}
        for trial, text, rate in ((0, None, 0.1), (1, "kick 0.1 at 3", 0.1), (2, "kick 0.1 at 3", 0.2))
        for seed, row in enumerate(trial_rows(trial, ["plateau"] * 2))
    ]
    timelines = ["..ppp", ".....", "ppppp", "ppppp", "ppppp", "ppppp"]
    heads = [row for each, line in zip(rows, timelines, strict=True) for row in head_rows(each, {(0, 0): line})]
    sweep_with_heads(tmp_path / "s", small_sweep("roles", workload="translation"), [rows], heads)
    with Ledger(tmp_path / "s").connect() as connection:
        (found,) = interventions(connection, "translation").to_pylist()
    assert (found["what"], found["intervention"]) == ("positional, encoder self", "kick 0.1 at 3")
    assert (found["n_pairs"], found["n_with"], found["n_without"], found["n_sooner"], found["n_later"]) == (
        2,
        2,
        1,
        2,
        0,
    )
