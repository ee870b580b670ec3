"""A sweep that was interrupted before its first row: every reader sees the columns of its search space."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.query import query_all
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Categorical, Conditional, Float, Int
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.small_sweep import open_writer, small_sweep, sweep_on_disk, trial_rows

_SPACE: dict[str, Dimension] = {
    "optimizer": Categorical(choices=("sgd", "adam")),
    "momentum": Conditional(on="optimizer", among=("sgd",), then=Float(low=0.0, high=0.9)),
    "n_categories": Int(low=3, high=9),
    "attention_activation": Categorical(choices=("identity", "softmax")),
    "skip": True,
}


@pytest.fixture
def bare(tmp_path: Path) -> SweepDirectory:
    """A sweep whose first trial was asked for, with nothing trained."""
    spec = small_sweep("bare")
    spec = spec.but(sampler="random", space={**spec.space, **_SPACE})
    directory = SweepDirectory.create(tmp_path / "bare", spec, {"hidden_width": None, "n_positions": 4})
    with open_writer(directory):
        study = open_study(directory)
        study.ask()
        study.save()
    return directory


def test_its_views_have_the_types_of_its_parameters(bare: SweepDirectory, tmp_path: Path) -> None:
    names = ("n_categories", "momentum", "attention_activation", "skip", "hidden_width", "n_positions")
    sql = f"select {', '.join(f'typeof(any_value(param_{name}))' for name in names)} from trainings"
    (row,) = query_all([Ledger(bare.place)], sql).to_pylist()
    assert list(row.values()) == ["BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DOUBLE", "BIGINT"]
    other = sweep_on_disk(tmp_path / "other", small_sweep("other"), trial_rows(0, ["solved"] * 2))
    union = query_all([Ledger(bare.place), Ledger(other.place)], "select param_n_categories from trials")
    assert union["param_n_categories"].to_pylist() == [10]


@pytest.mark.parametrize("has_folders", [False, True])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status"], "0 of 4 with trainings"),
        (["list"], "not finished"),
        (["audit"], "clean"),
        (["query"], "param_init_sigma"),
        (["compact"], ""),
        (["report"], "report.html"),
    ],
    ids=lambda case: case[0] if isinstance(case, list) else "",
)
def test_a_run_killed_at_its_start_left_an_empty_sweep(
    words: list[str], says: str, has_folders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    spec = small_sweep("s")
    declared = CategoryPairs.parameters.declared().items()
    defaults = {name: each.default for name, each in declared if name not in spec.space}
    directory = SweepDirectory.create(tmp_path / "s", spec, defaults)
    if has_folders:
        open_writer(directory).close()
    more = {"query": ["from trainings", "--format", "csv"], "report": ["--out", str(tmp_path / "report.html")]}
    done = CliRunner().invoke(app, [words[0], str(tmp_path / "s"), *more.get(words[0], [])], catch_exceptions=False)
    assert (done.exit_code, says in done.output) == (0, True), done.output
