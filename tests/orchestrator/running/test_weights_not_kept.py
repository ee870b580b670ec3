"""`run --keep-weights` that fails at its end: the sweep is finished, which is said first; then what failed, and how."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from attnsweep.orchestrator.cli import app
from tests.fault import sweeps

UNTRAINABLE = """
from pathlib import Path
from attnsweep import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs

class Untrainable(CategoryPairs):
    name = "untrainable"

    def build(self, parameters):
        if Path("{gone}").exists():
            raise ZeroDivisionError("planted")
        return super().build(parameters)

def sweep():
    return Sweep(
        name="untrainable", workload="untrainable.py:Untrainable", sampler="random", trials=2, replicates=2,
        space={"n_steps": 5, "n_categories": 3, "n_positions": 4},
    )
"""


def ended(spec: Path, folder: Path, on_finish: str, *more: str) -> Result:
    """A run whose hook is called before the weights are kept, and can spoil that."""
    arguments = ["run", str(spec), "--local", "--dir", str(folder / "s"), "--json", "--no-report"]
    hooks = ["--on-finish", f"cat > {folder / 'finished'}; {on_finish}", "--on-failure", f"cat > {folder / 'told'}"]
    return CliRunner().invoke(app, [*arguments, "--keep-weights", "0", *hooks, *more])


def check(done: Result, folder: Path, cause: str, again: str) -> None:
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, summary["finished"], summary["fault"]) == (1, True, None)
    assert json.loads((folder / "finished").read_text()) == summary
    assert "4 trainings of 2 trials" in done.stderr
    said = json.loads((folder / "told").read_text())
    assert said["directory"] == str(folder / "s")
    assert said["error"].startswith(f"the sweep has finished, but weights in {folder / 's'}/weights are missing (")
    assert cause in said["error"]
    assert said["error"].endswith(f"; to try again: {again}")
    assert f"attnsweep: {said['error']}\n" in done.stderr


@pytest.mark.usefixtures("no_mlflow")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    spec = tmp_path / "small.yaml"
    spec.write_text(sweeps.small_sweep(trials=2, replicates=2).to_yaml())
    path = tmp_path / "s"
    done = ended(spec, tmp_path, f"touch {path}/weights")
    check(done, tmp_path, f"{path}/weights", f"attnsweep resume {path}")
    (path / "weights").unlink()
    assert CliRunner().invoke(app, ["resume", str(path), "--local", "--no-report"]).exit_code == 0
    assert len(list((path / "weights").iterdir())) == 2
    # Of a trial that sweep.json does not name.
    for file in (path / "weights").iterdir():
        file.unlink()
    (path / "weights").rmdir()
    done = ended(spec, tmp_path, f"touch {path}/weights", "--or-resume", "--keep-weights", "1")
    check(done, tmp_path, f"{path}/weights", "the same command")


@pytest.mark.usefixtures("no_mlflow")
def test_a_training_that_fails_when_trained_again(tmp_path: Path) -> None:
    (tmp_path / "untrainable.py").write_text(UNTRAINABLE.replace("{gone}", str(tmp_path / "gone")))
    done = ended(tmp_path / "untrainable.py", tmp_path, f"touch {tmp_path / 'gone'}")
    check(
        done,
        tmp_path,
        "0/0: trained again it fails: ZeroDivisionError: planted",
        f"attnsweep resume {tmp_path / 's'}",
    )
