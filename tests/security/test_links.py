"""Links in a stranger's sweep directory: no command writes outside the directory."""

from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.report.page import write_report
from attnsweep.orchestrator.storage.files import parquet_names, set_aside, write_text
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, sweep_on_disk, trial_rows


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep of two fragments, for what merges them."""
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"))
    with open_writer(directory) as writer:
        for number in range(2):
            commit(writer, trial_rows(number, ["solved"] * 4, sweep=directory.sweep))
    return directory.place


def _put_text(path: Path) -> None:
    write_text(path, "code/x.py", "ours")


def _set_aside(path: Path) -> None:
    set_aside(path, "trainings", parquet_names(path / "trainings")[0])


def _report(path: Path) -> None:
    write_report([path], None)


@pytest.mark.parametrize(
    ("name", "act"),
    [
        (".lock", compact),
        ("code", _put_text),
        ("curves", compact),
        ("set_aside/trainings", _set_aside),
        ("report", _report),
    ],
)
def test_nothing_is_written_through_a_link(
    name: str, act: Callable[[Path], object], sweep: Path, tmp_path: Path
) -> None:
    victim, link = tmp_path / "victim", sweep / name
    victim.mkdir()
    if link.exists():
        link.rename(victim / "mine")
    target = victim / "mine" if (victim / "mine").exists() else victim
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    held = {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as refused:
        act(sweep)
    assert refused.value.subject == str(link)
    assert {path: path.read_bytes() for path in victim.rglob("*") if path.is_file()} == held


def test_a_sweep_directory_may_itself_be_a_link(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sweep)
    compact(tmp_path / "link")
    assert len(parquet_names(sweep / "trainings")) == 1
