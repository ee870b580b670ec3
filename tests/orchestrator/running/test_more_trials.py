"""`resume --trials +N`: a sweep that is given more trials is the sweep that had them from the start."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from attnsweep import Sweep
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments), "--local", "--no-report"], catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    return done.stderr


def spec_file(folder: Path, sweep: Sweep) -> Path:
    path = folder / f"{sweep.trials}.yaml"
    path.write_text(sweep.to_yaml())
    return path


def rows(directory: Path) -> list[tuple[object, ...]]:
    names = ["trial", "replicate", "training_id", "outcome", "eval_loss"]
    return sorted(zip(*(Ledger(directory).trainings(columns=names)[name].to_pylist() for name in names), strict=True))


@pytest.mark.slow
def test_more_trials_end_as_if_they_had_been_there_from_the_start(tmp_path: Path, no_mlflow: None) -> None:
    begun = spec_file(tmp_path, small_sweep("s", sampler="random", trials=2))
    run("run", begun, "--dir", tmp_path / "grown")
    run("resume", tmp_path / "grown", "--trials", "+1")
    whole = spec_file(tmp_path, small_sweep("s", sampler="random", trials=3))
    run("run", whole, "--dir", tmp_path / "whole")
    assert rows(tmp_path / "grown") == rows(tmp_path / "whole")
    assert not (tmp_path / "grown" / "report").exists()
    found = SweepDirectory.open(tmp_path / "grown")
    assert (found.finished, found.spec.trials, found.more_trials) == (True, 3, 1)
    # A scheduler that repeats the first command finds its sweep.
    assert "found 12 trainings" in run("run", begun, "--dir", tmp_path / "grown", "--or-resume")


def test_the_record_keeps_the_spec_of_the_start(tmp_path: Path) -> None:
    spec = small_sweep("s")
    SweepDirectory.create(tmp_path / "s", spec, {}).extended(2).extended(3)
    found = SweepDirectory.open(tmp_path / "s")
    assert (found.spec, found.spec_sha256) == (spec.but(trials=spec.trials + 5), spec.sha256())


@pytest.mark.parametrize("text", ["3", "+0", "+", "-1", "+x", "++1"])
def test_what_is_added_has_a_sign(text: str, tmp_path: Path) -> None:
    SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    with pytest.raises(UserError, match=r"--trials: got .*, expected \+N"):
        run("resume", tmp_path / "s", f"--trials={text}")
