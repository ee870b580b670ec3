"""When roles emerge: the first probe that has them and whose successor has them too."""

import itertools
from pathlib import Path
from typing import Any

from attnsweep.orchestrator.analysis.role_emergence import RoleHistory, role_histories, role_rates
from attnsweep.orchestrator.ledger.reader import Ledger
from tests.orchestrator.head_rows import Timelines, head_rows, sweep_with_heads
from tests.orchestrator.small_sweep import STEPS, small_sweep, trial_rows

SPEC = small_sweep("roles", workload="translation")


def _ledger(path: Path, *trainings: Timelines) -> Ledger:
    rows = trial_rows(0, ["plateau"] * len(trainings))
    heads = [row for each, timelines in zip(rows, trainings, strict=True) for row in head_rows(each, timelines)]
    sweep_with_heads(path, SPEC, [rows], heads)
    return Ledger(path)


def _history(ledger: Ledger, layer: int | None, role: str) -> RoleHistory:
    with ledger.connect() as connection:
        found = role_histories(connection, any_layer=layer is None)
    [history] = [each for each in found if (each.layer, each.role) == (layer, role)]
    return history


def _emergence(ledger: Ledger, layer: int, role: str) -> Any:
    with ledger.connect() as connection:
        found = role_rates(connection, SPEC).to_pylist()
    [one] = [each for each in found if (each["layer"], each["role"]) == (layer, role)]
    return one


def test_a_role_emerges_where_it_holds_at_the_next_probe_too(tmp_path: Path) -> None:
    """Timelines at STEPS 0, 1, 2, 4, 8."""
    ledger = _ledger(
        tmp_path / "s",
        {(0, 0): "ppppp", (0, 1): "....."},
        {(0, 0): ".p.pp", (0, 1): "....."},  # one probe is not enough
        {(0, 0): ".p...", (0, 1): "..pp."},  # another head takes over, and the role is lost again
        {(0, 0): "....p", (0, 1): "....."},  # not confirmed: censored at the probe before
        {(0, 0): ".pp", (0, 1): "..."},  # ended early
        {(0, 0): "...", (0, 1): ".s."},  # ended early without: censored at the probe before
        {(0, 0): "p", (0, 1): "."},  # one probe says nothing
    )
    history = _history(ledger, 0, "positional")
    assert history.emerged.tolist() == [True, True, True, False, True, False, False]
    assert history.step.tolist() == [0, 4, 1, 4, 1, 1, -1]
    assert history.before[history.emerged].tolist() == [-1, 2, 0, 0]
    assert history.n_with.tolist() == [1, 1, 0, 1, 1, 0, 1]
    assert history.counts() == {0: (7, 5)}
    assert history.n_heads.tolist() == [2] * 7
    found = _emergence(ledger, 0, "positional")
    assert (found["n_followed"], found["n_emerged"]) == (6, 4)
    assert (found["median_before"], found["median_step"], found["median_share"]) == (0, 1, 1 / 8)
    never = _emergence(ledger, 0, "syntactic")
    assert (never["n_emerged"], never["median_step"], never["median_share"]) == (0, None, None)
    assert {point["share"] for point in never["curve"]} == {0.0}


def test_what_a_training_did_later_changes_nothing_before(tmp_path: Path) -> None:
    """All timelines, to all lengths: one that is cut short shows the emergence of the whole one, or is censored before
    it. So lengths may differ."""
    whole = ["".join(letters) for letters in itertools.product("p.", repeat=len(STEPS))]
    cut = [letters[:length] for letters in whole for length in range(2, len(STEPS) + 1)]
    history = _history(_ledger(tmp_path / "s", *({(0, 0): letters} for letters in cut)), 0, "positional")
    for letters, emerged, step in zip(cut, history.emerged, history.step, strict=True):
        assert emerged == ("pp" in letters)
        assert step == STEPS[letters.index("pp") if emerged else len(letters) - 2]
