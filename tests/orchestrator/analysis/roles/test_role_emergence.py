"""When roles emerge: the first probe from which they stay."""

import itertools
from pathlib import Path

from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence, role_emergence
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, role_histories
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


def _emergence(ledger: Ledger, layer: int | None, role: str) -> RoleEmergence:
    with ledger.connect() as connection:
        found = role_emergence(connection, SPEC, any_layer=layer is None)
    [one] = [each for each in found if (each.layer, each.role) == (layer, role)]
    return one


def test_a_role_emerges_where_it_stays_from(tmp_path: Path) -> None:
    """Timelines at STEPS 0, 1, 2, 4, 8."""
    ledger = _ledger(
        tmp_path / "s",
        {(0, 0): "ppppp", (0, 1): "....."},
        {(0, 0): ".pp.p", (0, 1): "....."},  # holds, is lost, holds again
        {(0, 0): ".pp..", (0, 1): "...pp"},  # another head takes over
        {(0, 0): ".ppp.", (0, 1): "....."},  # lost for good: censored at the end
        {(0, 0): ".p", (0, 1): ".."},  # ended early
        {(0, 0): "...", (0, 1): ".s."},  # ended early without: censored there
    )
    history = _history(ledger, 0, "positional")
    assert history.emerged.tolist() == [True, True, True, False, True, False]
    assert history.step.tolist() == [0, 8, 1, 8, 1, 2]
    assert history.n_with.tolist() == [1, 1, 1, 0, 1, 0]
    assert history.n_heads.tolist() == [2] * 6
    found = _emergence(ledger, 0, "positional")
    assert (found.n_trainings, found.n_emerged) == (6, 4)
    assert (found.median_step, found.median_share) == (1.0, 1 / 8)
    never = _emergence(ledger, 0, "syntactic")
    assert (never.n_emerged, never.median_step, never.median_share) == (0, None, None)
    assert [point.share for point in never.curve] == [0.0] * len(never.curve)


def test_any_layer_takes_heads_of_all_layers_together(tmp_path: Path) -> None:
    ledger = _ledger(tmp_path / "s", {(0, 0): ".p...", (1, 0): "..ppp"}, {(0, 0): "...p.", (1, 0): "....."})
    assert _history(ledger, 0, "positional").emerged.tolist() == [False, False]
    assert _history(ledger, 1, "positional").step.tolist() == [2, 8]
    assert _history(ledger, None, "positional").step.tolist() == [1, 8]
    assert _history(ledger, None, "positional").n_heads.tolist() == [2, 2]


def test_it_is_the_first_probe_from_which_the_role_stays(tmp_path: Path) -> None:
    """All possible timelines."""
    timelines = ["".join(letters) for letters in itertools.product("p.", repeat=len(STEPS))]
    ledger = _ledger(tmp_path / "s", *({(0, 0): letters} for letters in timelines))
    history = _history(ledger, 0, "positional")
    assert history.emerged.tolist() == [letters.endswith("p") for letters in timelines]
    firsts = [len(letters.rstrip("p")) if letters.endswith("p") else len(STEPS) - 1 for letters in timelines]
    assert history.step.tolist() == [STEPS[first] for first in firsts]
