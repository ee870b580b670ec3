"""Rates of roles over a sweep: the counts, the intervals, and where they are shown."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from attnsweep.orchestrator.analysis.role_emergence import role_rates
from attnsweep.orchestrator.analysis.tables import Row
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from tests.orchestrator import head_rows as made_up
from tests.orchestrator.head_rows import WORDS, Timelines, sweep_with_heads
from tests.orchestrator.small_sweep import STEPS, small_sweep, trial_rows

SPEC = small_sweep("roles", workload="translation", trials=6)


def _rates(directory: SweepDirectory) -> dict[tuple[int | None, str], Row]:
    with Ledger(directory.place).connect() as connection:
        found = role_rates(connection, directory.spec).to_pylist()
    return {(each["layer"], each["role"]): each for each in found}


def _sweep(path: Path, *trials: Sequence[Timelines], spec: Sweep = SPEC) -> SweepDirectory:
    """One training for each element of a trial."""
    trainings = [trial_rows(number, ["plateau"] * len(trial)) for number, trial in enumerate(trials)]
    heads = [
        row
        for rows, trial in zip(trainings, trials, strict=True)
        for training, timelines in zip(rows, trial, strict=True)
        for row in made_up.head_rows(training, timelines)
    ]
    return sweep_with_heads(path, spec, trainings, heads)


@pytest.fixture(scope="module")
def random_sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    """6 trials x 4 replicates x 2 layers x 3 heads, some trainings short, some failed or diverged."""
    rng = np.random.default_rng(5)
    trainings, heads = [], []
    for trial in range(6):
        ends = rng.choice(["plateau", "solved", "failed", "diverged"], 4, p=[0.4, 0.4, 0.1, 0.1]).tolist()
        trainings.append(trial_rows(trial, ends, param_init_sigma=float(10 ** rng.uniform(-4, 0))))
        for training in trainings[-1]:
            length = rng.integers(1, len(STEPS) + 1)
            timelines = {
                (layer, head): "".join(rng.choice(list(WORDS), length, p=[0.3, 0.15, 0.0, 0.55]))
                for layer in range(2)
                for head in range(3)
            }
            heads += made_up.head_rows(training, timelines)
    return sweep_with_heads(tmp_path_factory.mktemp("sweeps") / "s", SPEC, trainings, heads)


_COUNTED = """
select {by} count(*) as n, count(*) filter (has) as k, sum(heads) as heads, sum(with_role) as with_role from (
    select trial, replicate, {layer} as layer, bool_or(role = '{role}') as has, count(*) as heads,
        count(*) filter (role = '{role}') as with_role
    from heads
    where (trial, replicate, step) in (select (trial, replicate, max(step)) from heads group by trial, replicate)
    group by all
) join trainings using (trial, replicate) where outcome <> 'failed' and outcome <> 'diverged' {where} group by all
"""


@pytest.mark.slow
def test_rates_are_those_of_an_independent_query(random_sweep: SweepDirectory) -> None:
    rates = _rates(random_sweep)
    assert {*rates} == {(layer, role) for layer in range(2) for role in ("positional", "syntactic", "rare_token")}
    with Ledger(random_sweep.place).connect() as connection:
        for (layer, role), rate in rates.items():
            sql = _COUNTED.format(by="", layer="layer", role=role, where=f"and layer = {layer}")
            [(n, k, heads, with_role)] = connection.execute(sql).fetchall()
            assert (rate["n"], rate["k"]) == (n, k)
            assert rate["head_share"] == pytest.approx(with_role / heads)
            assert 0 < n < 24
        assert {rate["k"] for (_, role), rate in rates.items() if role == "rare_token"} == {0}


def test_a_role_is_listed_where_it_occurs_or_its_score_is_measured(tmp_path: Path) -> None:
    rows = trial_rows(0, ["solved"])
    timelines = {(0, 0): ["none"], (1, 0): ["mixed"]}
    heads = made_up.head_rows(rows[0], timelines)
    measured = sweep_with_heads(tmp_path / "some", SPEC, [rows], heads, measured=["rare_token"])
    assert list(_rates(measured)) == [(0, "rare_token"), (1, "rare_token"), (0, "mixed"), (1, "mixed")]
    bare = sweep_with_heads(tmp_path / "none", SPEC, [rows], heads, score_names=(), measured=())
    assert {cell: each["k"] for cell, each in _rates(bare).items()} == {(0, "mixed"): 0, (1, "mixed"): 1}
