"""`attnsweep new-workload`: the file that it writes is a workload and a sweep as written; mistakes write nothing."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.tools.new_workload import write_workload
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import check_workload, defaults
from tests.orchestrator.commands import command
from tests.refusals import refused


@pytest.mark.slow
def test_the_file_is_a_workload_and_a_sweep_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_workload("copy_task", Path())
    sweep = load_sweep("copy_task.py")
    workload = load_workload(sweep.workload)
    assert (workload.name, sweep.name) == ("copy_task", "copy_task")
    check_sweep(sweep, workload.parameters)
    check_workload(workload, [defaults(workload), defaults(workload, init_sigma=1e-3)], quick=True)


@pytest.mark.parametrize("name", ["Copy", "../copy", "copy.py", "copy__task", "", "c" * 41, "lambda", "gpt", "torch"])
def test_a_bad_name_is_refused_and_nothing_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with refused("NAME", UserError):
        write_workload(name, Path())
    assert not list(tmp_path.iterdir())


def test_a_file_that_exists_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept_one.py").write_text("mine")
    ended = command("new-workload", "kept_one")
    assert ended.code == 2
    assert ended.err.startswith("attnsweep: NAME: got 'kept_one', expected a name whose file kept_one")
    assert (tmp_path / "kept_one.py").read_text() == "mine"
