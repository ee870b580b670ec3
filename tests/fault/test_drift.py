"""A sweep that is taken up with other versions or code than it was begun with."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from orchestrator import environment
from orchestrator.environment import Environment
from orchestrator.ledger.reader import Ledger
from orchestrator.loop import SweepLoop
from orchestrator.resources import Resources
from orchestrator.session import resume_sweep
from orchestrator.sweep_directory import SweepDirectory
from search_spaces import Sweep
from search_spaces.loading import load_sweep
from tests.fault import sweeps
from workloads.category_pairs import CategoryPairs
from workloads.errors import UserError
from workloads.registry import load_workload

pytestmark = pytest.mark.usefixtures("mlflow_database")


def _interrupted(spec: Sweep, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.after_commit(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(spec, path, pack_size=4).finished


def test_the_environment_names_what_a_training_depends_on() -> None:
    found = Environment.current(CategoryPairs())
    assert {"python", "torch", "numpy", "attnsweep"} <= found.versions.keys()
    # A user's files, which other tests have loaded here, come besides.
    assert found.code.keys() >= {"workloads", "search_spaces", "orchestrator/tasks.py", "orchestrator/trainer.py"}
    other = found.model_copy(
        update={"versions": {**found.versions, "torch": "1.0"}, "code": {**found.code, "workloads": "0"}}
    )
    assert other.changes(found) == [f"torch 1.0 -> {found.versions['torch']}", "code of workloads"]
    assert found.changes(found) == []
    assert found.id != other.id
    # What only one of them names, as of a file that only `run` has read, is not compared.
    assert found.model_copy(update={"code": {"spec.py": "0"}}).changes(found) == []


def test_other_versions_are_refused_and_recorded_where_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    now = Environment.current(CategoryPairs())
    before = now.model_copy(update={"versions": {**now.versions, "numpy": "1.2.3"}})
    with monkeypatch.context() as patch:
        patch.setattr(Environment, "current", classmethod(lambda *_: before))
        _interrupted(sweeps.small_sweep(), path, patch)
    record = (path / "sweep.json").read_text()
    n_before = len(sweeps.outcomes(path))

    with pytest.raises(UserError, match=r"got 'numpy 1\.2\.3 -> .*', expected the versions and code .*--accept-drift"):
        sweeps.resume(path)
    assert (path / "sweep.json").read_text() == record
    assert len(sweeps.outcomes(path)) == n_before

    assert resume_sweep(path, Resources(local=True), sweeps.Console(stderr=True), accept_drift=True).finished
    assert list(SweepDirectory.open(path).environments) == [before.id, now.id]
    trained = Ledger(path).trainings(columns=["environment"])["environment"].to_pylist()
    assert (trained.count(before.id), trained.count(now.id)) == (n_before, 32 - n_before)
    # It has become what the sweep is trained with.
    assert sweeps.resume(path).finished


@pytest.mark.parametrize(
    ("before", "n_from_checkpoint"),
    [({"versions": {"numpy": "1.2.3"}}, 0), ({"code": {"spec.py": "read by run alone"}}, 4)],
)
def test_a_checkpoint_of_another_environment_is_dropped(
    before: dict[str, dict[str, str]],
    n_from_checkpoint: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row names one environment: its training begins again, unless the two differ in nothing that both name."""
    path = tmp_path / "s"
    now = Environment.current(CategoryPairs())
    monkeypatch.setattr("orchestrator.local_pool.Trainer", sweeps.sliced())
    with monkeypatch.context() as patch:
        then = now.model_copy(update={name: {**getattr(now, name), **values} for name, values in before.items()})
        patch.setattr(Environment, "current", classmethod(lambda *_: then))
        patch.setattr(SweepLoop, "_receive", sweeps.after_slices(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
        assert not sweeps.run(sweeps.long_sweep(), path).finished
    assert len(list((path / "checkpoints").iterdir())) == 1
    console = sweeps.Console(record=True, width=200)
    assert resume_sweep(path, Resources(local=True), console, accept_drift=True).finished
    from_checkpoint = f", {n_from_checkpoint} of them from a checkpoint" if n_from_checkpoint else ""
    assert f"found 0 trainings, told 0 trials, 4 trainings to train{from_checkpoint}\n" in console.export_text()
    assert list((path / "checkpoints").iterdir()) == []


WORKLOAD = """
from search_spaces import Sweep
from workloads.category_pairs import CategoryPairs

class Own(CategoryPairs):
    name = "own"

def sweep():
    return Sweep(name="own", workload="own.py:Own", sampler="random", trials=4, replicates=4,
                 space={"n_steps": 20, "n_categories": 3, "n_positions": 4})
"""


def test_an_edited_workload_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.py"
    file.write_text(WORKLOAD)
    _interrupted(load_sweep(str(file)), tmp_path / "s", monkeypatch)
    file.write_text(WORKLOAD + "\n# Thought better of it.\n")
    with pytest.raises(UserError, match=r"got 'code of own\.py'"):
        sweeps.resume(tmp_path / "s")


def test_what_a_users_file_imports_from_beside_it_is_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_package").mkdir()
    imported = {
        "my_layers": "my_layers.py",
        "my_package": "my_package/__init__.py",
        "my_package.law": "my_package/law.py",
    }
    for file in [*imported.values(), "my_notes.py"]:
        (tmp_path / file).write_text("")
    (tmp_path / "own.py").write_text("import json, my_layers, my_package.law\n" + WORKLOAD)
    workload = load_workload(load_sweep(str(tmp_path / "own.py")).workload)
    before = Environment.current(workload)
    assert before.code.keys() - Environment.current(CategoryPairs()).code.keys() == set()
    assert {"own.py", *imported} <= before.code.keys()
    assert not {"my_notes", "json"} & before.code.keys()
    for module, file in imported.items():
        (tmp_path / file).write_text("# Thought better of it.")
        assert before.changes(Environment.current(workload)) == [f"code of {module}"]
        (tmp_path / file).write_text("")
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.parametrize("name", ["tasks.py", "trainer.py"])
def test_what_seeds_and_trains_is_code_too(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Environment.current(CategoryPairs())
    ours = Path(environment.__file__).parent
    shutil.copytree(ours, tmp_path / "orchestrator", ignore=lambda *_: ["__pycache__"])
    with (tmp_path / "orchestrator" / name).open("a") as file:
        file.write("# Thought better of it.")
    folder = environment._folder
    monkeypatch.setattr(environment, "_folder", lambda each: tmp_path / each if each == ours.name else folder(each))
    assert before.changes(Environment.current(CategoryPairs())) == [f"code of orchestrator/{name}"]
