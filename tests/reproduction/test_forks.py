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
from attnsweep.reproduction.studies.metric_laws import coordinates
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
    own_LF = coordinates(start["q_MK"], start["v_NN"])
    squares_L = torch.cat([value.flatten(1) for value in start.values()], dim=1).square().sum(1).numpy()
    rest_L = squares_L - (own_LF**2).sum(1)
    expected = LinearLaw.of(0.03).is_at_zero(own_LF, rest_L, n_steps)
    assert 8 < expected.sum() < 40
    assert (expected == (ended.outcome == "degenerate_zero")).sum() >= len(seeds) - 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "border", [fork_border.LABEL, pytest.param(fork_border.MERGED, marks=pytest.mark.scale)], ids=lambda each: each.name
)
def test_predicted_committors_are_measured(border: Border, tmp_path: Path) -> None:
    small = replace(border, n_replicates=32, n_rows=3, sizes=(0.3,), steps=(0,), n=32)
    found = fork_border.reproduce(tmp_path, QUIET, borders=[small])
    assert abs(float(found.rows[0].ours)) < 0.1
    assert found.rows[1].low is not None
    assert [path.name for path in found.figures] == ["fork-border.png", "fork-border.svg"]
    assert len(dict(found.tables)) == 2


def test_a_law_of_another_learning_rate_predicts_other_committors() -> None:
    draw = torch.Generator().manual_seed(0)
    q_MK, v_NN = (1e-3 * torch.randn(shape, generator=draw) for shape in ((20, 19), (10, 10)))
    n_steps = range(50, 300)
    right, wrong = (LinearLaw.of(rate).committors(q_MK, v_NN, 1.0, n_steps) for rate in (0.01, 0.009))
    assert right[0] > 0.95
    assert right[-1] < 0.05
    assert (wrong - right).max() > 0.1


@pytest.mark.parametrize("delay", [-2, 0, 5])
def test_a_planted_delay_is_found(delay: int) -> None:
    rng = np.random.default_rng(2)
    committor = 1 / (1 + np.exp(-(fork_border.DELAYS[:, None] + rng.normal(0, 8, (1, 32))) / 5))
    measured = rng.binomial(64, 1 / (1 + np.exp(-(delay + np.log(committor[8] / (1 - committor[8])) * 5) / 5))) / 64
    found, least, most = fork_border.delay_of((measured - committor).T)
    assert least < delay < most
    assert abs(found - delay) < 1.5


@pytest.mark.slow
def test_the_shares_that_are_decided_are_tabled_and_drawn(tmp_path: Path) -> None:
    induction, kicked = (
        replace(case, replicates=3, steps=(0, 4), n=3, values={**case.values, "n_steps": 8})
        for case in (fork_decided.CASES[0], fork_decided.CASES[-1])
    )
    found = fork_decided.reproduce(tmp_path, QUIET, cases=[induction, kicked])
    ((_, (header, *lines)),) = found.tables
    # Nothing is solved in so few steps, so nothing is decided.
    assert [line[:5] for line in lines] == [
        [name, change, step, "-", "3 x 3"]
        for name, change in (("induction", "data"), ("modular addition", "kick 0.01"))
        for step in ("0", "4")
    ]
    assert header[:4] == ["problem", "redrawn", "step", "share decided"]
    assert not [note for note in found.notes if "ends otherwise" in note]
    assert all(path.stat().st_size > 5_000 for path in found.figures)
    assert not found.rows
