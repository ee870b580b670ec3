"""The comparison of two sweeps: pairing, numbers, exit codes."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from attnsweep import compare
from attnsweep.orchestrator.analysis.rates.intervals import pooled_rate
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.cli.answers import EXIT_CHANGED
from attnsweep.search_spaces import Categorical, Float
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows
from tests.present import present
from tests.refusals import refused

N_TRIALS = 24


def _trial(number: int, outcomes: list[str], **given: object) -> Rows:
    rows = trial_rows(number, outcomes, param_init_sigma=10.0 ** (-4 + 4 * number / N_TRIALS), **given)
    return [row | {"seed": 100 * number + row["replicate"]} for row in rows]


def _write(path: Path, *trials: Rows) -> Path:
    sweep_on_disk(path, small_sweep(path.name, trials=len(trials), replicates=4), *trials)
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Trainings of B are stuck if those of A are, and in 30% of the other cases."""
    rng, root = np.random.default_rng(3), tmp_path_factory.mktemp("sweeps")
    ends = rng.choice(["solved", "marginal"], (N_TRIALS, 4), p=[0.7, 0.3])
    later = np.where((ends == "solved") & (rng.random(ends.shape) < 0.3), "degenerate_zero", ends)
    a = _write(root / "a", *(_trial(number, row.tolist()) for number, row in enumerate(ends)))
    b = _write(
        root / "b", *(_trial(number, row.tolist(), param_layer_norm_eps=1e-3) for number, row in enumerate(later))
    )
    return a, b


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], catch_exceptions=False)


@pytest.mark.slow
def test_pairs_agree_in_seed_and_in_all_parameters_but_those_compared(pair: tuple[Path, Path]) -> None:
    found = compare(*pair, by="init_sigma")
    assert (found.paired, found.n_pairs, found.n_configurations) == (True, 96, 24)
    assert found.changed_parameters == {"layer_norm_eps": (1e-5, 1e-3)}
    value, low, high = present(found.stuck_rate.interval)
    assert value == pytest.approx(present(found.stuck_rate.b.share) - present(found.stuck_rate.a.share))
    assert 0 < low < value < high
    assert list(found.outcomes) == ["solved", "marginal", "degenerate_zero"]
    marginal, marginal_low, marginal_high = present(found.outcomes["marginal"].interval)
    assert marginal == 0 == value + present(found.outcomes["solved"].difference)
    assert marginal_low < 0 < marginal_high
    assert [each.a.n for each in found.groups.values()] == [24, 24, 24, 24]
    assert np.average([present(each.difference) for each in found.groups.values()]) == pytest.approx(
        found.stuck_rate.difference
    )
    assert compare(*pair).stuck_rate == found.stuck_rate


@pytest.mark.scale
@pytest.mark.slow
def test_the_rate_of_one_outcome(pair: tuple[Path, Path]) -> None:
    found, of_solved = (compare(*pair, by="init_sigma", outcome=outcome) for outcome in ("degenerate_zero", "solved"))
    assert found.rate == found.outcomes["degenerate_zero"] != found.stuck_rate
    assert of_solved.rate == of_solved.outcomes["solved"] != of_solved.stuck_rate
    assert np.average([present(each.difference) for each in of_solved.groups.values()]) == pytest.approx(
        of_solved.rate.difference
    )
    assert of_solved.sentence().startswith("share of solved changed by -0.")
    done = _run(*pair, "--outcome", "marginal", "--json", "--at-most", 0)
    assert (done.exit_code, json.loads(done.stdout)["rate_of"]) == (0, "marginal")
    assert _run(*pair, "--outcome", "solved", "--at-most", 0).exit_code == EXIT_CHANGED
    with pytest.raises(UserError, match=r"outcome: got 'solvd', .*; did you mean solved\?"):
        compare(*pair, outcome="solvd")


@pytest.mark.slow
def test_other_seeds_are_not_paired(pair: tuple[Path, Path], tmp_path: Path) -> None:
    trials = [_trial(number, ["marginal", "solved"] * 2) for number in range(N_TRIALS)]
    other = _write(
        tmp_path / "c", *([row | {"seed": row["seed"] + 1000 * (row["trial"] > 3)} for row in t] for t in trials)
    )
    found = compare(pair[0], other, by="init_sigma")
    assert (found.paired, found.n_pairs) == (False, 16)
    assert "not paired: 16 trainings have a counterpart with equal parameters and seed" in found.lines()
    assert found.stuck_rate.p is None
    rate = pooled_rate([(4, 2)] * N_TRIALS)
    assert (found.stuck_rate.b.share, found.stuck_rate.b.low) == (0.5, rate.low)
    value, low, high = present(found.stuck_rate.interval)
    assert low < value < high
    assert sum(each.a.n + each.b.n for each in found.groups.values()) == 192


@pytest.mark.slow
def test_the_command_prints_and_exits_by_the_limit(pair: tuple[Path, Path]) -> None:
    done = _run(*pair)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "stuck rate changed by +0." in done.stderr.splitlines()[-1]
    assert "differ in layer_norm_eps 1e-05 -> 0.001" in done.stderr
    assert "marginal" in done.stderr
    done = _run(*pair, "--json", "--by", "init_sigma", "--at-most", 0)
    content = json.loads(done.stdout)
    assert (done.exit_code, content["paired"], content["n_pairs"], len(content["groups"])) == (4, True, 96, 4)
    assert content["difference_is_shown"] is True
    assert _run(*pair, "--at-most", 0.9).exit_code == 0
    assert content["by"] == ["init_sigma"]


@pytest.mark.slow
def test_mistakes(pair: tuple[Path, Path], tmp_path: Path) -> None:
    with refused("--by", UserError):
        compare(*pair, by="sigma")
    with refused("--by", UserError):
        compare(*pair, by="layer_norm_eps")
    sweep_on_disk(tmp_path / "t", small_sweep("t", workload="translation"))
    with refused("B", UserError):
        compare(pair[0], tmp_path / "t")


def test_other_ranges_and_samplers_are_said(tmp_path: Path) -> None:
    spaces = [
        {"n_categories": Categorical((4, 8)), "init_sigma": Float(0.01, 1.0), "n_steps": 8},
        {"n_categories": Categorical((8, 4)), "init_sigma": Float(0.5, 2.0), "n_steps": 8},
    ]
    for name, sampler, space in zip("ab", ("random", "tpe"), spaces, strict=True):
        spec = small_sweep(name, trials=2, replicates=4, space=space, sampler=sampler)
        sweep_on_disk(tmp_path / name, spec, *(_trial(at, ["solved"] * 4, param_n_categories=4) for at in range(2)))
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.spaces, found.samplers, found.paired) == (("init_sigma",), ("random", "tpe"), True)
