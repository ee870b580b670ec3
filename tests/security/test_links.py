"""Links in a stranger's sweep directory: no command writes outside the directory."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.report.page import VectorReport, write_report
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, sweep_on_disk, trial_rows

REFUSED = "got 'a symbolic link', expected a file or folder of the sweep's own, since it is written to; remove the link"


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep of two fragments, for what merges them."""
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"))
    with open_writer(directory) as writer:
        for number in range(2):
            commit(writer, trial_rows(number, ["solved"] * 4, sweep=directory.sweep))
    return folder_of(directory)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim.txt"
    path.write_text("mine")
    return path


def _mlflow_sync(path: Path) -> None:
    sync(SweepDirectory.open(path), f"sqlite:///{path.parent}/mlflow.db")


@pytest.mark.parametrize("act", [compact, _mlflow_sync])
def test_a_lock_that_leads_elsewhere_is_not_taken(act: Callable[[Path], None], sweep: Path, victim: Path) -> None:
    lock = sweep / ".ledger.lock"
    lock.unlink()
    lock.symlink_to(victim)
    with pytest.raises(UserError, match=rf"^{lock}: {REFUSED}"):
        act(sweep)
    assert victim.read_text() == "mine"


def test_a_text_is_not_written_through_a_link(sweep: Path, victim: Path) -> None:
    temporary = sweep / ".course.json.tmp"
    temporary.symlink_to(victim)
    with pytest.raises(UserError, match=rf"^{temporary}: {REFUSED}"):
        LocalFolder(sweep).put_text("course.json", "ours")
    temporary.unlink()
    (sweep / "replays.json").symlink_to(victim)
    LocalFolder(sweep).put_text("replays.json", "ours")
    assert (sweep / "replays.json").read_text() == "ours"
    assert victim.read_text() == "mine"


def test_a_table_of_another_sweep_is_neither_cleared_nor_written(sweep: Path, tmp_path: Path) -> None:
    """Files of `curves` without a file in `trainings` are leftovers and are removed; here they are a victim's."""
    other = folder_of(sweep_on_disk(tmp_path / "other", small_sweep("s"), trial_rows(2, ["solved"] * 4)))
    held = {path: path.read_bytes() for path in other.rglob("*") if path.is_file()}
    shutil.rmtree(sweep / "curves")
    (sweep / "curves").symlink_to(other / "curves")
    with pytest.raises(UserError, match=rf"^{sweep / 'curves'}: {REFUSED}"):
        compact(sweep)
    folder = LocalFolder(sweep)
    for write in (
        lambda: folder.publish("p", {"trainings": Path.touch, "curves": Path.touch}),
        lambda: folder.make_folders(["curves"]),
    ):
        with pytest.raises(UserError, match=REFUSED):
            write()
    assert {path: path.read_bytes() for path in other.rglob("*") if path.is_file()} == held
    assert folder.unfinished("trainings") == []


@pytest.mark.parametrize("folder", ["set_aside", "set_aside/trainings"])
def test_a_damaged_file_is_not_set_aside_elsewhere(folder: str, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    link = sweep / folder
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "other")
    name, *_ = LocalFolder(sweep).names("trainings")
    with pytest.raises(UserError, match=rf"^{link}: {REFUSED}"):
        LocalFolder(sweep).set_aside("trainings", name)
    assert list((tmp_path / "other").iterdir()) == []


@pytest.mark.parametrize("folder", ["report", "report/report_figures"])
def test_a_report_is_not_written_through_a_link(folder: str, sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    link = sweep / folder
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "other")
    with pytest.raises(UserError, match=rf"^{link}: {REFUSED}"):
        write_report([sweep], None)
    with pytest.raises(UserError, match=rf"^{link}: {REFUSED}"):
        VectorReport("page", ()).keep(LocalFolder(sweep))
    assert list((tmp_path / "other").iterdir()) == []


def test_a_sweep_directory_may_itself_be_a_link(sweep: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sweep)
    compact(tmp_path / "link")
    assert len(LocalFolder(sweep).names("trainings")) == 1
