"""`attnsweep forecast`: what it prints, and what `run` says of it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.tools.forecast.forecast import cases_of, seeds_for
from attnsweep.orchestrator.tools.forecast.price import price_of, seconds_of_packs
from attnsweep.search_spaces import Categorical, Conditional, Float, Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

SPEC = Sweep(
    name="tiny",
    workload="category_pairs",
    space={
        "n_categories": 4,
        "n_positions": 5,
        "n_steps": 100,
        "learning_rate": 0.1,
        "init_sigma": Float(1e-4, 0.1, log=True),
    },
    sampler="random",
    trials=10,
    replicates=3,
)


@pytest.mark.scale
@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_json_names_each_sigma_and_the_price(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tiny.json").write_text(SPEC.to_json())
    done = CliRunner().invoke(app, ["forecast", "tiny.json", "--seeds", "16", "--trials", "7", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    (case,) = found["cases"]
    assert [each["measured"] for each in case["escapes"]] == [True, False, False, False, False]
    medians = [each["median"] for each in case["escapes"]]
    assert medians == sorted(medians)
    assert found["price"]["n_trainings"] == 21
    assert found["price"]["n_rows"]["trainings"] == 21
    price = found["price"]
    assert 0 < price["core_seconds_low"] <= price["core_seconds"] <= price["core_seconds_high"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "tiny.json"]
    words = ["run", "tiny.json", "--dir", "s", "--trials", "7", "--seed", "3", "--local", "--no-report", "--json"]
    done = CliRunner().invoke(app, words)
    compared = json.loads(done.stdout.splitlines()[-1])["price"]
    assert compared["promised"]["seconds"] == price["core_seconds"]
    assert compared["took"]["n_rows"] > 21


@pytest.mark.scale
@pytest.mark.slow
def test_shapes_for_which_the_time_is_short_count_as_those_that_were_measured() -> None:
    workload = CategoryPairs()
    both = SPEC.but(space={**SPEC.space, "optimizer": Categorical(("sgd", "adam"))})
    found = price_of(both, workload, "vmapped", seconds=0.0)
    assert (found.n_shapes, found.n_measured) == (2, 1)
    assert found.n_rows["trainings"] == found.n_trainings == 30


def test_cases_are_the_combinations_of_choices_at_the_middle_of_ranges() -> None:
    spec = SPEC.fix({"n_positions": 5}).but(
        space={
            **SPEC.space,
            "qk": Categorical(("merged", "factored")),
            "qk_rank": Conditional(on="qk", among=("factored",), then=Categorical((4, 8))),
            "learning_rate": Float(1e-3, 1e-1, log=True),
            "init_sigma": Categorical((0.01, None, 0.1)),
        }
    )
    (merged, factored), _ = cases_of(spec, CategoryPairs())
    assert [case.chosen["qk"] for case in (merged, factored)] == ["merged", "factored"]
    assert factored.chosen["qk_rank"] == 4
    assert merged.parameters.learning_rate == pytest.approx(1e-2)
    assert merged.sigmas == (0.1, 0.01, None)


def test_cases_are_of_trainings_without_interventions() -> None:
    space = {**SPEC.space, "qk": Categorical(("merged", "factored"))}
    texts = (None, "kick 0.1 at 90", "freeze v_NN 0..5")
    cases, has_some = cases_of(SPEC.but(space={**space, "intervention": Categorical(texts)}), CategoryPairs())
    assert has_some
    assert [dict(case.chosen) for case in cases] == [{"qk": "merged"}, {"qk": "factored"}]
    assert {case.parameters.intervention for case in cases} == {None}
    for spec, has_some in ((SPEC.but(space=space), False), (SPEC.fix({"intervention": texts[1]}), True)):
        assert cases_of(spec, CategoryPairs())[1] == has_some


@pytest.mark.scale
@pytest.mark.slow
def test_a_forecast_says_what_it_leaves_out_and_prices_the_interventions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    texts = (None, "kick 0.1 at 90", "freeze v_NN 0..5")
    spec = SPEC.but(
        space={**SPEC.space, "init_sigma": 0.1, "intervention": Categorical(texts)}, sampler="grid", trials=3
    )
    (tmp_path / "tiny.json").write_text(spec.to_json())
    done = CliRunner().invoke(app, ["forecast", str(tmp_path / "tiny.json"), "--seeds", "8"])
    assert done.exit_code == 0, done.output
    (line,) = [line for line in done.stdout.splitlines() if "intervention" in line]
    assert line.startswith("interventions are not forecast: the steps to leave are those of trainings without;")
    assert "price: 9 trainings" in done.stdout


def test_a_price_is_that_of_the_packs_that_the_sweep_makes() -> None:
    """Packs of 64, 128 and 256 while larger ones are faster, then the rest in one, at 1 s and 1 ms a training."""
    n_packs = 4
    assert seconds_of_packs(1024, {64: 1.064, 512: 1.512}) == pytest.approx(n_packs + 1.024)
    alike = seconds_of_packs(1024, {64: 0.64, 512: 5.12})
    assert alike == pytest.approx(10.24)
    assert seconds_of_packs(10, {10: 2.0}) == pytest.approx(2.0)


def test_seeds_for_a_rate() -> None:
    assert seeds_for(0.5) == 2398
    assert seeds_for(0.0) < seeds_for(0.1) < seeds_for(0.5)
