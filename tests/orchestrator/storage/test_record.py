"""The records of a sweep directory: read back unchanged, or refused in one line that names the file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsweep.orchestrator.storage.environment import Environment
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.local import LocalFolder
from attnsweep.orchestrator.storage.record import DamagedRecordError, RecordFile
from attnsweep.orchestrator.storage.run_records import REPLAYS, Replays, earlier_replays, read_replays
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, SweepDirectory
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.storage.limits import may_open

COURSE_FILE = "course.json"
REPLAYED = Replays(deviations={"a": 0.0, "b": 1e-9}, disagreeing={})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that is finished, with all its records."""
    path = tmp_path_factory.mktemp("records") / "s"
    directory = sweep_on_disk(path, small_sweep("s", trials=1), trial_rows(0, ["solved"] * 4))
    directory.record_run(finished=True, seconds=12.5)
    REPLAYS.write(LocalFolder(path), REPLAYED)
    return path


def _read(path: Path, name: str, content: bytes) -> object:
    """The result of reading a record with this content."""
    file = path / name
    written = file.read_bytes()
    file.write_bytes(content)
    try:
        directory = SweepDirectory.open(path)
        return directory, directory.finished, directory.seconds_spent, read_replays(directory)
    finally:
        file.write_bytes(written)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SWEEP_FILE, COURSE_FILE, REPLAYS.name])
@settings(max_examples=60)
@given(where=st.floats(min_value=0, max_value=1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
def test_a_changed_byte_is_damage(name: str, path: Path, where: float, byte: int, *, cut: bool) -> None:
    content = (path / name).read_bytes()
    at = int(where * len(content))
    changed = content[:at] if cut else content[:at] + bytes([byte]) + content[at + 1 :]
    if changed == content:
        return
    with pytest.raises(DamagedRecordError) as damage:
        _read(path, name, changed)
    assert str(damage.value).startswith(f"{path / name}: got ")
    assert "\n" not in str(damage.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1"),
        (b"\xff{}", "'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
        (b"[1]", "the contents do not match the stored sha256"),
        (b'{"finished": true, "seconds": 1.0, "sha256": "x"}', "the contents do not match the stored sha256"),
        (b'{"finished": true, "seconds": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(content: bytes, reason: str, path: Path) -> None:
    with pytest.raises(DamagedRecordError) as damage:
        _read(path, COURSE_FILE, content)
    assert reason in str(damage.value.given)
    assert f"attnsweep resume {path}" in damage.value.fix


def test_a_record_that_cannot_be_opened_now_is_not_damaged(path: Path) -> None:
    """`resume` writes a damaged one anew: with other seconds, or after replaying trainings again."""
    directory = SweepDirectory.open(path)
    reads: dict[str, Callable[[], object]] = {
        COURSE_FILE: lambda: directory.finished,
        REPLAYS.name: lambda: earlier_replays(directory),
        SWEEP_FILE: lambda: SweepDirectory.open(path),
    }
    for read in reads.values():
        with may_open(0), pytest.raises(StoreError):
            read()


def test_a_record_is_a_file_and_nothing_that_one_waits_for(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("folder", "device", "loop"):
        with pytest.raises(DamagedRecordError):
            RecordFile(name, Replays, "remove it").read(LocalFolder(tmp_path))


def test_a_resumed_sweep_writes_a_damaged_course_anew(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    (tmp_path / "s" / COURSE_FILE).write_bytes(b"\xff")
    (tmp_path / "s" / REPLAYS.name).write_bytes(b"\xff")
    assert earlier_replays(directory) is None
    directory.record_as(directory.entering(Environment(versions={})))
    assert (directory.finished, directory.seconds_spent) == (False, 0.0)
