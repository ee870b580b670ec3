"""Every file of a sweep directory, damaged in every way: each command that reads it exits cleanly and names it."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import TEXT
from attnsweep.orchestrator.ledger.trial import Told
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.storage.files import digest
from attnsweep.orchestrator.storage.run_records import PROGRESS, Replays
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SWEEP_FILE, SweepDirectory
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import commit, open_writer, small_sweep, trial_rows

RECORDS = (SWEEP_FILE, PROGRESS.name, STUDY_FILE)
TABLES = ("trainings", "curves")
READERS: dict[str, list[str]] = {
    "status": [],
    "query": ["select outcome, max(eval_loss), max(value) from trainings join curves using (trial) group by all"],
    "compare": ["other"],
    "compact": [],
    "audit": [],
    "report": ["--out", "report.html"],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps of two trials, all told, with every record; no MLflow yet."""
    home = tmp_path_factory.mktemp("home")
    for name in ("s", "other"):
        directory = SweepDirectory.create(home / name, small_sweep(name, trials=2, replicates=2), {})
        with open_writer(directory) as writer:
            study = open_study(directory)
            for number in range(2):
                values = {f"param_{each}": value for each, value in study.values(study.ask()).items()}
                commit(writer, trial_rows(number, ["solved", "marginal"], sweep=directory.sweep, **values))
                study.tell(number, Told((0.5,), {}))
            study.save()
        replays = Replays(deviations={"0/0": 0.0}, disagreeing={})
        directory.record_run(finished=True, seconds=1.0, replays=replays)
    return home


@pytest.fixture
def sweep(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to be damaged."""
    for name in ("s", "other"):
        shutil.copytree(home / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return tmp_path / "s"


def _told(name: str) -> tuple[int, str]:
    """Runs a command on the sweep; returns its exit code and output. Errors that are not ours are raised."""
    ended = command(name, "s", *READERS[name])
    assert "<Buffer>" not in ended.out + ended.err  # pyarrow's name for an opened file
    if ended.code == 2:
        assert ended.err.startswith("attnsweep: ")
        assert ended.err.count("\n") == 1
    return ended.code, ended.out + ended.err


def _file(sweep: Path, name: str) -> Path:
    return sweep / name if name in RECORDS else sorted((sweep / name).glob("*.parquet"))[0]


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def _changed(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def _other_pages(content: bytes) -> bytes:
    """Changes all bytes of a Parquet file except its footer: it opens, but its rows cannot be read."""
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:4] + bytes(each ^ 255 for each in content[4:end]) + content[end:] if end > 4 else b"\xff"


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a pipe": _replaced(os.mkfifo),
    "a folder": _replaced(Path.mkdir),
    "a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "a link to nowhere": _replaced(lambda path: path.symlink_to("nowhere")),
    "empty": _changed(lambda content: content[:0]),
    "half": _changed(lambda content: content[: len(content) // 2]),
    "binary": _changed(lambda content: bytes(each ^ 255 for each in content)),
    "not UTF-8 at the end": _changed(lambda content: content + b"\xff\xfe"),
    "other pages": _changed(_other_pages),
    "null": _changed(lambda content: content[:0] + b"null"),
    "deep": _changed(lambda content: content[:0] + b"[" * 100_000),
}
SOME = ("a pipe", "a folder", "binary", "other pages")
# Each command with each file it reads; the slow commands, which use the same functions, with few damages.
CASES = [
    *(("status", name, damage) for name in (SWEEP_FILE, "trainings") for damage in DAMAGES),
    *(("query", "curves", damage) for damage in DAMAGES),
    *(("compact", name, damage) for name in TABLES for damage in DAMAGES),
    *(("compare", "trainings", damage) for damage in SOME),
    *(("report", "curves", damage) for damage in SOME),
    *(("audit", name, damage) for name in RECORDS for damage in SOME),
    *(("audit", name, "other pages") for name in TABLES),
]
HARMLESS = {("status", SWEEP_FILE, "a link to nowhere"): "a directory that contains no sweep yet.json is no sweep"}


@pytest.mark.slow
@pytest.mark.parametrize(("reader", "name", "damage"), CASES)
def test_a_command_names_the_file_that_is_damaged(reader: str, name: str, damage: str, sweep: Path) -> None:
    path = _file(sweep, name)
    DAMAGES[damage](path)
    code, said = _told(reader)
    if (reader, name, damage) not in HARMLESS:
        named = name if (reader, damage) == ("query", "other pages") else path.name  # DuckDB knows the table
        assert (code, named in said) == (1 if reader == "audit" else 2, True), said


def _rewritten(path: Path, rows: pa.Table, **metadata: bytes) -> Path:
    """The file with other rows and metadata, under a name with the right digest."""
    kept = {key: value for key, value in (pq.read_metadata(path).metadata or {}).items() if key != b"ARROW:schema"}
    given = {name.encode(): value for name, value in metadata.items()}
    temporary = path.with_suffix(".tmp")
    pq.write_table(rows.replace_schema_metadata(kept | given), temporary)
    with temporary.open("rb") as file:
        target = path.with_name(f"{path.stem.rpartition('-')[0]}-{digest(file)}.parquet")
    path.unlink()
    return temporary.rename(target)


def _with(name: str, kind: pa.DataType, values: list[Any] | None = None) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        column = pa.array(values or [None] * rows.num_rows, kind)
        place = rows.schema.get_field_index(name)
        field = pa.field(name, kind, nullable=values is None)
        return rows.append_column(field, column) if place < 0 else rows.set_column(place, field, column)

    return change


HOSTILE_COLUMNS: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "a type": _with("trial", pa.string(), ["a", "b"]),
    "none": lambda rows: rows.drop_columns(["outcome", "stuck"]),
    "a parameter": _with("param_init_sigma", pa.binary(), [b"", b""]),
    "a clash": _with("param_n_categories", TEXT, ["a", "b"]),
}


@pytest.mark.parametrize("case", HOSTILE_COLUMNS)
def test_a_file_with_other_columns_is_named(case: str, sweep: Path) -> None:
    path, curves = _file(sweep, "trainings"), _file(sweep, "curves")
    digests = json.dumps({"curves": hashlib.sha256(curves.read_bytes()).hexdigest()[:32]}).encode()
    changed = _rewritten(path, HOSTILE_COLUMNS[case](pq.read_table(path)), digests=digests)
    curves.rename(curves.with_name(changed.name))
    for reader, exit_code in {"status": 2, "compact": 2, "audit": 1}.items():
        code, said = _told(reader)
        assert (code, "trainings/p" in said) == (exit_code, True)
    # A resumed sweep begins with this.
    with open_writer(SweepDirectory.open(sweep)) as writer:
        assert len(writer.set_aside) == 1
    assert Ledger(sweep).trainings().num_rows == 2
