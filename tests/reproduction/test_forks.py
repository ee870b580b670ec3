"""The studies of forks at a small size: what the escape law predicts is what continuations do."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from attnsweep.reproduction.studies import fork_border, fork_decided
from attnsweep.reproduction.studies.fork_border import Border, LinearLaw
from attnsweep.reproduction.trained import trained
from attnsweep.workloads.category_pairs import CategoryPairs
from attnsweep.workloads.engine.contract import Lanes, Training

pytestmark = pytest.mark.usefixtures("no_mlflow")

QUIET = Console(file=io.StringIO())
PAIRS = CategoryPairs()


def test_the_linear_law_labels_each_training_as_it_ends() -> None:
    """At the border about half of the trainings are still at the zero."""
    seeds, values = range(48), {"n_categories": 10, "n_positions": 20, "init_sigma": 1e-3, "learning_rate": 0.03}
    n_steps = 52
    ended = trained(PAIRS, seeds, values | {"n_steps": n_steps})
    parameters = ended.parameters
    lanes = Lanes([Training(parameters, seed) for seed in seeds], torch.device("cpu"))
    start = PAIRS.initial(PAIRS.build(parameters).to(lanes.dtype), lanes)
    own_LF = fork_border.coordinates(start["q_MK"], start["v_NN"])
    squares_L = sum(value.square().sum((1, 2)) for value in start.values()).numpy()
    rest_L = squares_L - (own_LF**2).sum(1)
    expected = LinearLaw.of(0.03).is_at_zero(own_LF, rest_L, n_steps)
    assert 8 < expected.sum() < 40
    assert (expected == (ended.outcome == "degenerate_zero")).sum() >= len(seeds) - 1


def _small(border: Border) -> Border:
    return replace(border, n_replicates=64, n_rows=4, sizes=border.sizes[-2:], steps=border.steps[:2], n=16)


@pytest.mark.slow
def test_predicted_committors_are_measured_and_those_of_another_number_of_steps_are_not(tmp_path: Path) -> None:
    borders = [_small(border) for border in (fork_border.LABEL, fork_border.MERGED)]
    found = fork_border.reproduce(tmp_path, QUIET, borders=borders)
    excess = {row.name: row for row in found.rows if "measured minus" in row.name}
    for border in borders:
        assert abs(float(excess[f"{border.name}: measured minus predicted committor"].ours)) < 0.06
    assert [path.name for path in found.figures] == ["fork-border.png", "fork-border.svg"]
    assert len(dict(found.tables)) == 4
    wrong = LinearLaw.of(0.95 * fork_border.LABEL.learning_rate)
    right = LinearLaw.of(fork_border.LABEL.learning_rate)
    q_MK, v_NN = 1e-3 * torch.ones(20, 19), 1e-3 * torch.eye(10)
    n_steps = range(100, 400)
    n = n_steps[int((right.committors(q_MK, v_NN, 1.0, n_steps) < 0.5).argmax())]
    assert wrong.committors(q_MK, v_NN, 1.0, [n]) > 0.55


@pytest.mark.slow
def test_the_shares_that_are_decided_are_tabled_and_drawn(tmp_path: Path) -> None:
    induction, kicked = (
        replace(case, replicates=3, steps=(0, 4), n=3, values={**case.values, "n_steps": 8})
        for case in (fork_decided.CASES[0], fork_decided.CASES[-1])
    )
    found = fork_decided.reproduce(tmp_path, QUIET, cases=[induction, kicked])
    ((_, (header, *lines)),) = found.tables
    assert [line[:4] for line in lines] == [
        [name, change, step, "3 x 3"]
        for name, change in (("induction", "data"), ("modular addition", "kick 0.01"))
        for step in ("0", "4")
    ]
    # Nothing is solved in so few steps, so nothing is decided.
    assert [dict(zip(header, line, strict=True))["share decided"] for line in lines] == ["-"] * 4
    assert not [note for note in found.notes if "ends otherwise" in note]
    assert all(path.stat().st_size > 5_000 for path in found.figures)
    assert np.all([row.low is not None for row in found.rows])
