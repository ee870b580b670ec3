"""`attnsweep specs`, `attnsweep workloads`, and what is said of a name that does not exist."""

import pytest
from typer.testing import CliRunner

from attnsweep import Sweep
from attnsweep.orchestrator.cli import app
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.errors import SpecError, UserError
from attnsweep.workloads.registry import load_workload


def shown(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout.splitlines()


def test_each_shipped_sweep_has_its_line() -> None:
    lines = shown("specs")
    assert lines[0].split() == ["sweep", "workload", "trainings", "what", "it", "answers,", "and", "what", "varies"]
    (line,) = [line for line in lines if line.startswith("quickstart ")]
    assert line.split()[1:5] == ["category_pairs", "128", "x", "8"]
    assert "init_sigma, learning_rate" in " ".join(" ".join(lines).split())


def test_a_sweep_as_yaml() -> None:
    assert "\n".join(shown("specs", "quickstart", "--yaml")) + "\n" == load_sweep("quickstart").to_yaml()


@pytest.mark.slow
def test_a_workload_shows_each_parameter() -> None:
    lines = shown("workloads", "category_pairs", "--set", "learning_rate=0.25")
    assert lines[0].startswith("category_pairs: ")
    assert lines[1].startswith("engine: ")
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["parameter"] == ["parameter", "type", "default", "range", "static", "meaning"]
    assert set(load_workload("category_pairs").parameters.declared()) <= set(rows)
    assert rows["learning_rate"][1:5] == ["float", "0.25", ">", "0"]
    assert rows["optimizer"][1:8] == ["str", "sgd", "sgd,", "adam,", "adamw,", "lbfgs", "static"]
    assert rows["init_sigma"][1:7] == ["float", "0.1", ">=", "0,", "or", "null"]


@pytest.mark.slow
def test_meanings_can_be_read_on_80_columns() -> None:
    done = CliRunner().invoke(app, ["workloads", "category_pairs"], env={"COLUMNS": "80"}, catch_exceptions=False)
    assert "init_sigma              standard deviation of the Gaussian initialization;" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_parameter_of_another_workload_is_named() -> None:
    sweep = Sweep(name="a", workload="formal_languages", space={"window": 3}, trials=1)
    with pytest.raises(SpecError) as raised:
        check_sweep(sweep, load_workload("formal_languages").parameters)
    assert "expected a parameter of this workload, not only of translation; remove it" in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("specs", "quickstrat"), "quickstart"),
        (("run", "Quickstart"), "quickstart"),
        (("run", "quickstart", "--local", "--set", "variant=position_only", "--dir", "d"), "positions_only"),
        (("run", "quickstart", "--local", "--set", "init_sgima=1", "--dir", "d"), "init_sigma"),
        (("workloads", "category_pair"), "category_pairs"),
        (("reproduce", "shin-fig4"), "shin-fig3"),
    ],
)
def test_the_likely_name_is_suggested(arguments: tuple[str, ...], meant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UserError) as raised:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert raised.value.fix == f"did you mean {meant}?"
