"""The audit: clean on a sweep that is well, and each kind of damage is found. Real study, ledger and MLflow."""

import json
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow import MlflowClient

from orchestrator import cli
from orchestrator.audit import Audit, audit, course
from orchestrator.audit.verdict import in_one_line
from orchestrator.ledger.writer import LedgerWriter
from orchestrator.study import read_trials
from orchestrator.sweep_directory import STUDY_FILE, SweepDirectory
from orchestrator.tracking import sync
from search_spaces import Float, LossQuantile, Sequential, Sweep
from search_spaces.loading import load_sweep
from tests.orchestrator.places.object_store import new_prefix, object_store
from tests.orchestrator.trained_sweep import FRAGILE, edit, edit_row, records, trained_sweep

Damage = Callable[[SweepDirectory], None]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("audit")
    (home / "fragile.py").write_text(FRAGILE)
    return home


@pytest.fixture(scope="module")
def store(home: Path) -> Path:
    return home / "mlflow.db"


@pytest.fixture(scope="module")
def whole(home: Path, store: Path) -> SweepDirectory:
    """Ten trials: 4 is refused, all of 8 failed."""
    directory = trained_sweep(home / "whole", load_sweep(str(home / "fragile.py")))
    sync(directory, f"sqlite:///{store}")
    return directory


@pytest.fixture
def sweep(whole: SweepDirectory, tmp_path: Path) -> SweepDirectory:
    """A copy to be damaged."""
    shutil.copytree(str(whole.path), tmp_path / "sweep")
    return SweepDirectory.open(tmp_path / "sweep")


@pytest.fixture
def uri(whole: SweepDirectory, store: Path, tmp_path: Path) -> str:
    """A copy of the MLflow database."""
    shutil.copy(store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path}/mlflow.db"


@pytest.fixture(scope="module", autouse=True)
def _known_store(home: Path) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'mlflow.db'}")
        yield


def _problems(found: Audit) -> list[str]:
    return [str(problem) for problem in found.problems]


def _lines(found: Audit) -> list[str]:
    return [check.line for check in found.checks]


def _bytes(path: Path) -> dict[str, tuple[bytes, int]]:
    files = [file for file in path.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def test_a_sweep_that_is_well_is_clean(whole: SweepDirectory) -> None:
    found = audit(whole.path)
    assert _problems(found) == []
    assert found.finished
    assert found.counts == {"asked": 9, "trained": 9, "told": 9, "logged": 9}
    assert _lines(found) == [
        "asked 9 = trained 9 = told 9 = logged 9 trials, 1 more refused",
        "trainings 27 = wanted 27; parameters, seeds and ids recomputed",
        "curves and heads of these trainings alone, none without curves but failed ones",
        "MLflow: 9 runs of trials, 1 of the sweep",
        f"sweep.json: the spec as it was written, sha256 {whole.spec_sha256[:12]}",
        "files 3, each as it was written",
        "replayed 2 trainings alone: they end as fused, largest deviation of a loss 0",
    ]


def test_an_audit_writes_nothing_and_needs_no_lock(sweep: SweepDirectory, tmp_path: Path, uri: str) -> None:
    table = pq.read_table(Path(str(sweep.path)) / "trainings")
    with LedgerWriter(sweep.path, table.schema, None, sweep.spec_sha256):
        before = _bytes(tmp_path)
        assert not audit(sweep.path, uri).problems
        assert _bytes(tmp_path) == before


def _drop(table: str, **wanted: Any) -> Damage:
    """Removes the rows that have all of these values."""

    def damage(directory: SweepDirectory) -> None:
        def change(rows: pa.Table) -> pa.Table:
            kept = [row for row in rows.to_pylist() if any(row[name] != value for name, value in wanted.items())]
            assert len(kept) < rows.num_rows
            return pa.Table.from_pylist(kept, rows.schema)

        edit(directory, table, change)

    return damage


def _add(table: str, **values: Any) -> Damage:
    """Adds a row: a copy of the first, with other values."""

    def damage(directory: SweepDirectory) -> None:
        def change(rows: pa.Table) -> pa.Table:
            held = rows.to_pylist()
            first = held[0] if held else {"step": 0, "layer": 0, "head": 0, "role": "none"}
            return pa.Table.from_pylist([*held, first | values], rows.schema)

        edit(directory, table, change)

    return damage


def _set(place: int, **values: Any) -> Damage:
    """Changes values of one row of `trainings`."""
    return lambda directory: edit_row(directory, "trainings", place, **values)


def _journal(is_meant: Callable[[dict[str, Any]], bool], **values: Any) -> Damage:
    """Changes entries of the study's journal; without values, removes the first and all that follow."""

    def damage(directory: SweepDirectory) -> None:
        file = Path(str(directory.path)) / STUDY_FILE
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        first = next(index for index, entry in enumerate(entries) if is_meant(entry))
        if not values:
            entries = entries[:first]
        entries = [entry | values if is_meant(entry) else entry for entry in entries]
        file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    return damage


def _told(trial: int) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: "values" in entry and "state" in entry and entry.get("trial_id") == trial


def _lose_the_last_trial(directory: SweepDirectory) -> None:
    for table in ("trainings", "curves"):
        _drop(table, trial=9)(directory)
    file = Path(str(directory.path)) / STUDY_FILE
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    last_asked = max(index for index, entry in enumerate(entries) if "datetime_start" in entry)
    kept = [entry for index, entry in enumerate(entries) if index != last_asked and entry.get("trial_id") != 9]
    file.write_text("".join(json.dumps(entry) + "\n" for entry in kept))


def _never_failed(directory: SweepDirectory) -> None:
    for row in records(directory, trial=8):
        _set(row["place"], outcome="plateau")(directory)


def _lose_a_column(directory: SweepDirectory) -> None:
    edit(directory, "trainings", lambda rows: rows.drop_columns("param_momentum"))


DAMAGES: dict[str, tuple[Damage, list[str]]] = {
    "a training lost": (
        _drop("trainings", trial=3, replicate=1),
        [
            "1 trials told without all their trainings: 3 (1 of 3 missing); go on with: attnsweep resume DIR",
            "1 trainings that are in curves alone: 3/1; remove the files",
            "1 runs of the sweep that count other trainings: ",
            "1 runs of trials that are not complete: 3 (",
        ],
    ),
    "a row twice": (
        _add("trainings"),
        ["1 trainings recorded more than once: 0/0; remove the files", "1 runs of the sweep", "1 runs of trials"],
    ),
    "a replicate too many": (
        _add("trainings", replicate=3),
        [
            "1 trainings that their trial does not want: 0/3; remove the files",
            "1 trainings with another seed than the sweep gives them: 0/3",
            "1 trainings whose id is not that of their parameters and seed: 0/3",
            "1 trainings that did not fail and have no curves: 0/3",
            "1 runs of the sweep",
            "1 runs of trials",
        ],
    ),
    "a trial nobody asked for": (
        _add("trainings", trial=77, outcome="failed"),
        ["1 trials trained that were never asked for: 77; restore the study, or remove", "1 runs of the sweep"],
    ),
    "a refused trial's row": (
        _add("trainings", trial=4, outcome="failed"),
        ["1 trials refused, yet trained: 4; remove the files", "1 runs of the sweep"],
    ),
    "another value of a parameter": (
        _set(5, param_init_sigma=0.125),
        ["1 trainings with another value of init_sigma than the study has: 1/2; restore the folders"],
    ),
    "another text": (
        _set(5, param_dtype="float32"),
        ["1 trainings with another value of dtype than the study has: 1/2; "],
    ),
    "a parameter that is null": (
        _set(5, param_init_sigma=None),
        ["1 trainings with another value of init_sigma than the study has: 1/2; "],
    ),
    "another seed": (_set(7, seed=3), ["1 trainings with another seed than the sweep gives them: 2/1; restore"]),
    "another id": (
        _set(7, training_id="abc"),
        [
            "1 trainings whose id is not that of their parameters and seed: 2/1; restore",
            "1 trainings that are in curves alone: 2/1; remove",
            "1 trainings that did not fail and have no curves: 2/1; restore",
        ],
    ),
    "another sweep's row": (_set(7, sweep="other"), ["1 trainings of another sweep: 2/1; remove the files"]),
    "another outcome": (
        _set(0, outcome="runaway", stuck=True),
        ["1 trials told another value than their trainings have: 0 (0.0, not 0.3333333333333333); restore the study"],
    ),
    "failed after all": (
        _never_failed,
        [
            "1 trials told another value than their trainings have: 8 (None, not 0.0)",
            "3 trainings that did not fail and have no curves: 8/0, 8/1, 8/2; restore",
        ],
    ),
    "curves lost": (
        _drop("curves", trial=5, replicate=0),
        ["1 trainings that did not fail and have no curves: 5/0; restore"],
    ),
    "curves of nobody": (
        _add("curves", training_id="abc", trial=9, replicate=9),
        ["1 trainings that are in curves alone: 9/9; remove the files"],
    ),
    "heads of nobody": (
        _add("heads", training_id="abc", trial=9, replicate=9),
        ["1 trainings that are in heads alone: 9/9; remove the files"],
    ),
    "another value told": (
        _journal(_told(2), values=[0.75]),
        ["1 trials told another value than their trainings have: 2 (0.75, not 0.0); restore the study"],
    ),
    "the last trial not told": (
        _journal(_told(8)),
        ["1 trials asked for and never told: 8; go on with: attnsweep resume DIR"],
    ),
    "a trial lost altogether": (
        _lose_the_last_trial,
        [
            "1 fewer trials than the budget: 9 of 10; go on with: attnsweep resume DIR",
            "1 runs of the sweep that count other trainings: ",
            "1 runs of trials that are not complete: 9 (",
        ],
    ),
    "a trial that another program pruned": (
        _journal(_told(2), state=2),
        ["1 trials in a state that attnsweep does not know: 2 (PRUNED); restore the study"],
    ),
    "a column gone": (
        _lose_a_column,
        [
            "not checked: parameters, seeds and ids: the workload declares momentum otherwise than when it was trained;"
            " audit it with the version"
        ],
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: str, sweep: SweepDirectory) -> None:
    inflict, expected = DAMAGES[damage]
    inflict(sweep)
    found = _problems(audit(sweep.path))
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, expected, strict=True):
        assert problem.startswith(beginning)


def test_what_is_missing_is_no_fault_before_the_end(home: Path) -> None:
    """What is told and lost, or there twice, is a fault all the same."""
    directory = trained_sweep(home / "stopped", load_sweep(str(home / "fragile.py")), n_commits=2)
    found = audit(directory.path)
    assert _problems(found) == []
    assert not found.finished
    asked, told = found.counts["asked"], found.counts["told"]
    assert asked is not None
    assert told is not None
    assert 0 < told < asked < 9
    assert found.counts["logged"] == 0
    row = next(row for row in records(directory) if row["replicate"] == 0)
    _drop("trainings", training_id=row["training_id"])(directory)
    lost = f"1 trials told without all their trainings: {row['trial']} (1 of 3 missing)"
    assert _problems(audit(directory.path))[0].startswith(lost)


def test_a_trial_asked_for_during_the_audit_is_no_fault(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = trained_sweep(tmp_path / "running", load_sweep(str(home / "fragile.py")))
    directory.record_run(finished=False, seconds=1.0)
    readings = iter([7, 10])
    monkeypatch.setattr(course, "read_trials", lambda directory: read_trials(directory)[: next(readings)])
    assert _problems(audit(directory.path)) == []
    readings = iter([7, 7])
    [problem] = _problems(audit(directory.path))
    assert problem.startswith("3 trials trained that were never asked for: 7, 8, 9; ")


def test_replicates_as_needed_and_another_objective(home: Path) -> None:
    spec = Sweep(
        name="sequential",
        workload="category_pairs",
        space={"n_steps": 8, "n_categories": 3, "n_positions": 4, "init_sigma": Float(low=1e-4, high=1.0, log=True)},
        sampler="random",
        objective=LossQuantile(quantile=0.5),
        trials=3,
        replicates=Sequential(width=0.6, at_most=6, batch=2),
    )
    directory = trained_sweep(home / "sequential", spec)
    sync(directory)
    found = audit(directory.path)
    assert _problems(found) == []
    assert found.counts["asked"] == 3
    last = records(directory, trial=1)[-1]
    assert 2 < last["replicate"] + 1 <= 6
    _drop("trainings", trial=1, replicate=last["replicate"])(directory)
    n_wanted = last["replicate"] + 1
    assert _problems(audit(directory.path))[0].startswith(
        f"1 trials told without all their trainings: 1 (1 of {n_wanted} missing)"
    )


def test_files_that_cannot_be_read(sweep: SweepDirectory) -> None:
    (path,) = (Path(str(sweep.path)) / "curves").glob("*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    found = audit(sweep.path)
    assert found.counts == {"asked": None, "trained": None, "told": None, "logged": 9}
    assert _lines(found)[0] == "asked ?, trained ?, told ?, logged 9 trials"
    unread, damaged = _problems(found)
    assert unread.startswith(f"not checked: trials and trainings: {path}: ")
    assert damaged.startswith(f"{path}: ")
    assert damaged.endswith("not what was written, by its checksum; go on with: attnsweep resume DIR")
    assert _lines(found)[-2] == "files 3"


def test_a_page_that_is_damaged_behind_a_whole_footer(sweep: SweepDirectory) -> None:
    (path,) = (Path(str(sweep.path)) / "trainings").glob("*.parquet")
    content = bytearray(path.read_bytes())
    content[40:4000] = b"x" * 3960
    path.write_bytes(content)
    unread, damaged = _problems(audit(sweep.path))
    assert unread.startswith(f"not checked: trials and trainings: {path}: not what was written, by its checksum")
    assert damaged.startswith(f"{path}: not what was written, by its checksum; go on with: attnsweep resume DIR")


def test_a_file_of_another_sweep(sweep: SweepDirectory) -> None:
    edit(replace(sweep, spec_sha256="5ec" * 21 + "a"), "heads", lambda rows: rows)
    problems = _problems(audit(sweep.path))
    assert len(problems) == 3
    assert all("rows of another sweep, of the spec 5ec5ec5ec5ec" in problem for problem in problems)


def test_a_study_that_is_gone_or_damaged(sweep: SweepDirectory) -> None:
    journal = Path(str(sweep.path)) / STUDY_FILE
    text = journal.read_text()
    journal.write_text("{" + text)
    [problem] = _problems(audit(sweep.path))
    assert problem.startswith(f"not checked: trials and trainings: {journal}: JSONDecodeError: ")
    journal.unlink()
    [problem] = _problems(audit(sweep.path))
    assert problem.startswith(
        f"not checked: trials and trainings: {journal}: FileNotFoundError: there is no study.journal"
    )
    assert not journal.exists()


def test_a_study_in_a_storage_of_its_own(tmp_path: Path) -> None:
    spec = load_sweep("quickstart").but(trials=2, replicates=2, storage=f"sqlite:///{tmp_path}/study.db")
    directory = trained_sweep(tmp_path / "sweep", spec.fix({"n_steps": 5}))
    directory.record_run(finished=False, seconds=1.0)
    found = audit(directory.path)
    assert found.counts == {"asked": 2, "trained": 2, "told": 2, "logged": 0}
    assert _problems(found) == []
    (tmp_path / "study.db").write_bytes(b"")
    [problem] = _problems(audit(directory.path))
    assert problem.startswith("not checked: trials and trainings: the study: StorageInternalError: ")
    assert (tmp_path / "study.db").read_bytes() == b""


def test_a_spec_that_was_edited(sweep: SweepDirectory) -> None:
    record = Path(str(sweep.path)) / "sweep.json"
    record.write_text(record.read_text().replace('"trials": 10', '"trials": 11'))
    found = audit(sweep.path)
    assert _problems(found) == [
        "sweep.json: a spec that does not match its sha256; "
        "restore the file: a sweep's spec is not edited, run a new sweep instead"
    ]
    assert _lines(found) == ["sweep.json cannot be read: nothing else was checked"]


def _client(uri: str) -> tuple[MlflowClient, str]:
    client = MlflowClient(uri)
    return client, client.get_experiment_by_name("Fragile").experiment_id


def _run_id(uri: str, condition: str) -> str:
    client, experiment = _client(uri)
    [run] = client.search_runs([experiment], condition)
    return str(run.info.run_id)


def test_runs_that_mlflow_lacks_or_has_too_many(whole: SweepDirectory, uri: str) -> None:
    client, experiment = _client(uri)

    def of(trial: int) -> str:
        return f"tags.`attnsweep.trial_key` = '{whole.sweep}/{trial}'"

    parent = _run_id(uri, "tags.`attnsweep.kind` = 'sweep'")
    client.delete_run(_run_id(uri, of(2)))
    client.update_run(_run_id(uri, of(3)), status="RUNNING")
    client.set_tag(parent, "attnsweep.n_trainings", "26")
    first = client.get_run(_run_id(uri, of(0)))
    again = client.create_run(experiment, tags=first.data.tags).info.run_id
    stranger = client.create_run(
        experiment, tags=first.data.tags | {"attnsweep.trial_key": f"{whole.sweep}/77"}
    ).info.run_id
    found = audit(whole.path, uri)
    assert found.counts["logged"] == 7
    assert _lines(found)[0].startswith("asked 9 = trained 9 = told 9 > logged 7 trials")
    count, missing, twice, unknown = _problems(found)
    sync_it = "log what is missing with: attnsweep mlflow-sync DIR"
    assert count == f"1 runs of the sweep that count other trainings: {parent} (26, not 27); {sync_it}"
    assert missing == f"2 complete trials without a finished run: 2, 3; {sync_it}"
    assert twice.startswith("1 trials with several runs: 0 (")
    assert again in twice
    assert twice.endswith("; delete what is too much with: mlflow runs delete --run-id ID")
    assert unknown.startswith(f"1 runs of trials that are not complete: 77 ({stranger}); delete")

    client.create_run(experiment, tags=client.get_run(parent).data.tags)
    assert _problems(audit(whole.path, uri))[0].startswith("2 runs of the sweep itself, and not one: ")
    for run in (again, stranger):
        client.delete_run(run)


def test_the_mends_of_mlflow_mend(whole: SweepDirectory, uri: str) -> None:
    client, _ = _client(uri)
    client.delete_run(_run_id(uri, f"tags.`attnsweep.trial_key` = '{whole.sweep}/2'"))
    client.set_tag(_run_id(uri, "tags.`attnsweep.kind` = 'sweep'"), "attnsweep.n_trainings", "26")
    assert len(audit(whole.path, uri).problems) == 2
    sync(whole, uri)
    assert _problems(audit(whole.path, uri)) == []


def test_mlflow_that_has_nothing_is_left_as_it_is(whole: SweepDirectory, tmp_path: Path) -> None:
    missing, trials = _problems(audit(whole.path, f"sqlite:///{tmp_path}/none/mlflow.db"))
    assert missing.startswith(f"1 sweeps without a run: {whole.sweep}; log what is missing")
    assert trials.startswith("9 complete trials without a finished run: 0, 1, 2 and 6 more; log what is missing")
    assert list(tmp_path.iterdir()) == []


def test_mlflow_out_of_reach(whole: SweepDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    found = audit(whole.path, f"http://me:secret@127.0.0.1:{port}")
    [problem] = _problems(found)
    assert problem.startswith(f"not checked: MLflow (http://...@127.0.0.1:{port}): MlflowException: ")
    assert problem.endswith("; start it, or give another --tracking-uri")
    assert "secret" not in problem
    assert found.counts["logged"] is None
    assert _lines(found)[3] == "MLflow: ?"


def test_a_sweep_in_an_object_store(home: Path) -> None:
    with object_store():
        prefix = new_prefix()
        directory = trained_sweep(prefix, load_sweep(str(home / "fragile.py")))
        found = audit(directory.path)
        assert found.counts == {"asked": 9, "trained": 9, "told": 9, "logged": 0}
        assert [str(problem).partition(":")[0] for problem in found.problems] == [
            "1 sweeps without a run",
            "9 complete trials without a finished run",
        ]


def _command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command_says_it_all(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(["audit", str(sweep.path)], monkeypatch) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{sweep.sweep}: finished"
    assert printed[1] == "ok     asked 9 = trained 9 = told 9 = logged 9 trials, 1 more refused"
    assert printed[-1] == "clean"

    _set(7, seed=3)(sweep)
    assert _command(["audit", str(sweep.path), "--json"], monkeypatch) == 1
    written = capsys.readouterr()
    told = json.loads(written.out)
    assert (told["clean"], told["finished"], told["sweep"]) == (False, True, sweep.sweep)
    [fault] = [check for check in told["checks"] if check["problems"]]
    assert fault["problems"][0]["what"].startswith("1 trainings with another seed")
    assert "FAULT  trainings 27 = wanted 27" in written.err
    assert written.err.splitlines()[-1].startswith("- 1 trainings with another seed than the sweep gives them: 2/1; ")


def test_no_sweep_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _command(["audit", str(tmp_path)], monkeypatch) == 2
    assert capsys.readouterr().err.startswith(f"attnsweep: DIR: got '{tmp_path}', expected a sweep directory")
    assert list(tmp_path.iterdir()) == []


def test_counts_in_one_line() -> None:
    assert in_one_line({"a": 1000, "b": 999, "c": 1000, "d": None}) == "a 1,000 > b 999 < c 1,000, d ?"
