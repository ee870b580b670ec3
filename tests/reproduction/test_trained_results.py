"""The main results of the papers that train, at a size of seconds: Shin & Matzinger's Figures 1 to 3, Chiang & Cholak's
Figure 4, Conti's structured heads."""

from copy import copy
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import PackResult
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults

pytestmark = pytest.mark.slow


def _trained(name: str, n_seeds: int, *, among: dict[str, tuple[str, ...]] | None = None, **values: Any) -> PackResult:
    """Trains seeds of a shipped sweep in one pack, for each value in `among`, measured at both ends."""
    sweep = load_sweep(name)
    workload = copy(load_workload(sweep.workload))

    class AtBothEnds(type(workload)):  # type: ignore[misc]
        def probe_steps(self, parameters: Any) -> tuple[int, ...]:
            return 0, parameters.n_steps

    workload.__class__ = AtBothEnds
    [(varied, choices)] = (among or {"n_steps": ()}).items()
    fixed = {**sweep.fixed(), **values}
    each = [fixed | {varied: choice} for choice in choices] or [fixed]
    trainings = [Training(defaults(workload, **given), seed) for given in each for seed in range(n_seeds)]
    return Pack(workload, trainings).train_to_end()


def _scores(result: PackResult, probe: int = -1) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(score) for name, score in result.heads[probe].heads.scores.items()}


def test_shin_figure_1_the_learned_logits_are_the_target() -> None:
    found = _trained("shin_solution_2", 5, n_categories=5, n_positions=8, batch_size=400, n_steps=80)
    assert np.median(_scores(found)["match_logits_target"]) > 0.95
    assert np.median(found.last("eval_loss") / found.evidence.levels["mean"]) < 0.1


def test_shin_figures_2_and_3_each_flavour_holds_its_solution_and_the_second_is_worst() -> None:
    leans = ("lean_1", "lean_2", "lean_3")
    sizes: dict[str, Any] = {"n_categories": 4, "n_positions": 8, "batch_size": 200, "n_steps": 100}
    found = _trained("shin_flavours", 5, among={"flavour": leans}, **sizes)
    of = {name: np.median(score.reshape(3, 5), axis=1) for name, score in _scores(found).items()}
    loss_1, loss_2, loss_3 = np.median(found.last("eval_loss").reshape(3, 5), axis=1)
    assert loss_2 > 5 * loss_1
    assert loss_2 > 2 * loss_3
    # Solution 2 attends by categories and moves positions, the others attend by positions and move categories.
    assert min(*of["share_logits_pp"][[0, 2]], of["share_logits_cc"][1]) > 0.9
    assert min(*of["share_values_cc"][[0, 2]], of["share_values_pp"][1]) > 0.9
    assert min(*of["match_logits_shift"][[0, 2]], of["match_logits_target"][1]) > 0.9
    assert of["match_values_identity"][0] > of["match_values_identity"][2]


def test_chiang_figure_4_first_generalizes_with_log_n() -> None:
    sizes: dict[str, Any] = {
        "train_length": 10,
        "longest_test_length": 100,
        "eval_batch_size": 8,
        "test_batch_size": 20,
    }
    scales = ("inv_sqrt_d", "log_n_query_inv_sqrt_d")
    found = _trained("chiang_fig4", 5, among={"attention_scale": scales}, n_epochs=9, steps_per_epoch=100, **sizes)
    unscaled, scaled = found.last("cross_entropy_100").reshape(2, 5)
    assert (found.last("accuracy") == 1.0).all()
    assert (found.last("accuracy_100")[5:] == 1.0).all()
    assert (scaled < unscaled).all()
    assert np.median(scaled) < 0.1


def test_conti_the_encoders_heads_become_diagonal_and_banded() -> None:
    sizes: dict[str, Any] = {
        "n_sentences": 1000,
        "head_sentences": 60,
        "eval_sentences": 32,
        "d_model": 32,
        "d_ffn": 64,
    }
    found = _trained("conti_heads", 3, n_heads=8, n_epochs=8, **sizes)
    before, after = _scores(found, 0), _scores(found)
    for family in ("sigma_1", "sigma_2_w1"):
        at_first, at_last = (np.median(scores[family][:, 0]) for scores in (before, after))
        assert at_last < at_first
    assert np.median(after["alignment"][:, 2]) > 2 * np.median(before["alignment"][:, 2])
