"""In-context regression and Markov chains: the closed form of a time course, and what rows are made of."""

from pathlib import Path

import numpy as np
import pytest

from attnsweep.reproduction.field import in_context_regression, markov_chains
from attnsweep.reproduction.field.markov_chains import Stages
from attnsweep.reproduction.trained import trained
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.field.in_context_regression import IN_CONTEXT_REGRESSION
from attnsweep.workloads.parameters import Value
from tests.orchestrator.trained_sweep import trained_sweep


def test_merged_attention_follows_its_closed_form() -> None:
    values: dict[str, Value] = {"kq": "merged", "covariance": "white", "init_sigma": 1e-3, "learning_rate": 0.05}
    white = trained(IN_CONTEXT_REGRESSION(), range(3), values | {"n_steps": 1000, "stop_when_solved": False})
    loss, expected = white.evidence.metrics["eval_loss"], in_context_regression.closed_form(white)
    assert np.abs(loss - expected).max() < 0.03  # Of finite steps.
    assert expected[:, -1].max() < 0.2 < 0.99 < expected[:, 0].min()


def test_a_median_is_given_where_most_got_there() -> None:
    slow, late = Stages(20.0, 300.0, True, True), Stages(30.0, float("inf"), False, False)
    never = Stages(float("inf"), 200.0, True, False)
    stages = {"any": [slow, slow, late], "doubly_stochastic": [never, never]}
    rows = {row.name: row for row in markov_chains.rows_of(stages, 3)}
    assert rows["3 states, any: unigrams before bigrams"].ours == 1.0
    assert rows["3 states, any: bigrams within n_steps"].ours == pytest.approx(2 / 3)
    assert "3 states, any: steps to bigrams" not in rows
    assert rows["3 states, doubly_stochastic: steps to bigrams"].ours == 200.0
    assert rows["3 states: steps to bigrams, doubly_stochastic over any"].ours == pytest.approx(2 / 3)
    assert rows["3 states, any: induction head in the second block, where bigrams came"].ours == 1.0


@pytest.mark.slow
def test_stages_are_read_from_events_and_roles(tmp_path: Path) -> None:
    small = {"n_context": 8, "batch_size": 4, "n_steps": 20}
    spec = load_sweep("markov_chains").fix(small).but(replicates=2, certified_share=0.0)
    found = markov_chains.stages_of(trained_sweep(tmp_path / "chains", spec, pack_size=4))
    assert {n: {name: len(each) for name, each in cells.items()} for n, cells in found.items()} == {
        n_states: {"any": 2, "doubly_stochastic": 2} for n_states in (2, 3)
    }
