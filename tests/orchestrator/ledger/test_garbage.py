"""`attnsweep gc`: it shows what can go and frees it, and never what resume, replay or audit need."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.garbage import collect
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.storage.object_store import new_prefix

SOLVED = ["solved"] * 4
LEFT_OVER = {
    ".sweep.json.tmp",
    "trainings/.p.0f.tmp",
    "curves/p-0123.parquet",
    "checkpoints/.p.1f.tmp",
    "report/.ab.tmp",
    "set_aside/trainings/p-4567.parquet",
}
KEPT = {"checkpoints/p-89ab.parquet", "mine/.draft.tmp", "set_aside/README", "weights/a-b.parquet"}


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    """An unfinished sweep of two fragments, with files that a crash left, and others that look alike."""
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"))
    with open_writer(directory) as writer:
        for trial in (0, 1):
            commit(writer, trial_rows(trial, SOLVED, sweep=directory.sweep))
    for name in LEFT_OVER | KEPT:
        path = folder_of(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"12345")
    return directory


def files(directory: SweepDirectory) -> set[str]:
    return set(directory.place.sizes()) - {".ledger.lock"}


def test_files_are_shown_and_freed(directory: SweepDirectory) -> None:
    before, rows = files(directory), Ledger(directory.place).trainings()
    shown = command("gc", directory.place)
    assert f"30 bytes in 6 files can go; free them with: attnsweep gc {directory.place} --delete" in shown.out
    assert files(directory) == before
    said = json.loads(command("gc", directory.place, "--delete", "--json").out)
    assert said["deleted"]
    assert {each["file"] for each in said["sweeps"][str(directory.place)]} == LEFT_OVER
    assert files(directory) == before - LEFT_OVER
    assert Ledger(directory.place).trainings().equals(rows)
    assert command("gc", directory.place, "--delete").out == "nothing can go\n"


def test_checkpoints_go_when_the_sweep_is_finished(directory: SweepDirectory) -> None:
    assert not any(each.file == "checkpoints/p-89ab.parquet" for each in collect(directory.place, delete=False))
    directory.record_run(finished=True, seconds=1.0)
    collect(directory.place, delete=True)
    assert files(directory).isdisjoint({"checkpoints/p-89ab.parquet"})


def test_replaced_fragments_go_and_no_row_with_them(directory: SweepDirectory) -> None:
    names = directory.place.names("trainings")
    old = {name: (folder_of(directory) / "trainings" / f"{name}.parquet").read_bytes() for name in names}
    compact(directory.place)
    for name, content in old.items():
        (folder_of(directory) / "trainings" / f"{name}.parquet").write_bytes(content)
    found = {each.file for each in collect(directory.place, delete=True)}
    assert found >= {f"trainings/{name}.parquet" for name in names}
    assert Ledger(directory.place).trainings().num_rows == 8


def test_a_running_sweep_is_refused(directory: SweepDirectory) -> None:
    before = files(directory)
    with closing(directory.place.lock("run")), pytest.raises(UserError, match="another process works on"):
        collect(directory.place, delete=True)
    assert files(directory) == before


def test_a_damaged_ledger_is_refused(directory: SweepDirectory) -> None:
    name, _ = directory.place.names("trainings")
    (folder_of(directory) / "trainings" / f"{name}.parquet").write_bytes(b"torn")
    before = files(directory)
    with pytest.raises(UserError, match="attnsweep resume"):
        collect(directory.place, delete=True)
    assert files(directory) == before


def test_files_in_an_object_store(s3: str) -> None:
    prefix = new_prefix()
    directory = sweep_on_disk(prefix, small_sweep("s"), trial_rows(0, SOLVED))
    assert isinstance(prefix, ObjectPrefix)
    for name in (".clock-1", "curves/p-0123.parquet", "set_aside/curves/q-1.parquet"):
        prefix.put_text(name, "12345")
    found = {each.file for each in collect(directory.place, delete=True)}
    assert found == {".clock-1", "curves/p-0123.parquet", "set_aside/curves/q-1.parquet"}
    assert found.isdisjoint(prefix.sizes())
    assert Ledger(prefix).trainings().num_rows == 4
