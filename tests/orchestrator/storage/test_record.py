"""The records of a sweep directory: read back unchanged, or refused in one line that names the file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsweep.orchestrator.storage.record import DamagedRecordError
from attnsweep.orchestrator.storage.run_records import PROGRESS, Replays
from attnsweep.orchestrator.storage.sweep_directory import SWEEP_FILE, Extension, SweepDirectory
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.orchestrator.storage.limits import may_open

REPLAYED = Replays(deviations={"a": 0.0, "b": 1e-9}, disagreeing={})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that is finished, with all its records."""
    path = tmp_path_factory.mktemp("records") / "s"
    directory = sweep_on_disk(path, small_sweep("s", trials=1), trial_rows(0, ["solved"] * 4))
    directory.record_run(finished=True, seconds=12.5, replays=REPLAYED)
    return path


def _read(path: Path) -> object:
    return SweepDirectory.open(path), PROGRESS.read(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [SWEEP_FILE, PROGRESS.name])
@settings(max_examples=60)
@given(where=st.floats(min_value=0, max_value=1, exclude_max=True), byte=st.integers(0, 255), cut=st.booleans())
def test_a_changed_byte_is_damage_or_changes_nothing(
    name: str, path: Path, where: float, byte: int, *, cut: bool
) -> None:
    file, before = path / name, _read(path)
    written = file.read_bytes()
    at = int(where * len(written.rstrip()))
    file.write_bytes(written[:at] if cut else written[:at] + bytes([byte]) + written[at + 1 :])
    damage = None
    try:
        found = _read(path)
    except DamagedRecordError as error:
        damage, found = error, before
    finally:
        file.write_bytes(written)
    assert found == before
    assert damage is None or str(damage).startswith(f"{file}: got ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value: line 1 column 1"),
        (b"\xff{}", "'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "the JSON is nested too deeply"),
        (b"[1]", "the contents do not match the stored sha256"),
        (b'{"finished": true, "seconds": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    ],
)
def test_what_is_no_record_is_said_to_be_none(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / PROGRESS.name).write_bytes(content)
    with pytest.raises(DamagedRecordError) as damage:
        PROGRESS.read(tmp_path)
    assert reason in str(damage.value.given)
    assert f"attnsweep resume {tmp_path}" in damage.value.fix


def test_a_record_that_cannot_be_opened_now_is_not_damaged(path: Path) -> None:
    with may_open(0), pytest.raises(OSError, match="Too many open files"):
        SweepDirectory.open(path)


def test_what_is_added_makes_a_sweep_unfinished_and_its_record_keeps_what_was_given(path: Path) -> None:
    directory = SweepDirectory.open(path)
    added = (Extension(trials=3), Extension(trials=1, replicates=2), Extension().retrying([(0, 2), (0, 1)]))
    directory.record_as(directory.but(extensions=added))
    found = SweepDirectory.open(path)
    assert (found.finished, found.progress.seconds) == (False, 12.5)
    assert (found.spec.trials, found.spec.replicates, found.stages, found.retried) == (5, 6, (4, 6), ({0: (1, 2)},))
    assert (found.given, found.given.sha256()) == (directory.given, found.spec_sha256)
    assert found.but(extensions=()).spec == found.given


def test_a_damaged_progress_is_none(tmp_path: Path) -> None:
    directory = SweepDirectory.create(tmp_path / "s", small_sweep("s"), {})
    (tmp_path / "s" / PROGRESS.name).write_bytes(b"\xff")
    assert not directory.finished
    directory.record_run(finished=True, seconds=2.0)
    assert (directory.finished, directory.progress.seconds) == (True, 2.0)
