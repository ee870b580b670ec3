"""A sweep that was interrupted before its first row: every reader sees the columns of its search space."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.small_sweep import open_writer, small_sweep


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
