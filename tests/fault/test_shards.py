"""Sweeps of several drivers: their union is the sweep of one, whoever is killed, and is read as one meanwhile."""

import json
import os
import resource
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.comparison import compare
from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.inspection.fork import fork
from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.running import entry, session
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.session import resume_sweep
from attnsweep.orchestrator.running.study import read_trials
from attnsweep.orchestrator.storage.locks import TakenError
from attnsweep.orchestrator.storage.place_names import PlaceName, place_of
from attnsweep.orchestrator.storage.run_records import Beacon, PackUnderWay
from attnsweep.orchestrator.storage.shards import Shard, shards_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces import Categorical, Float, LossQuantile, Sequential, Sweep
from attnsweep.search_spaces.pruners import MedianPruner
from attnsweep.workloads.errors import UserError
from tests.fault import shards, sweeps
from tests.orchestrator.commands import command
from tests.orchestrator.storage.object_store import leave_lease, new_prefix
from tests.orchestrator.trained_sweep import in_environment

pytestmark = pytest.mark.usefixtures("no_mlflow")

HERE = Resources(local=True)
GRID = {"init_sigma": Float(low=1e-3, high=1.0, log=True, points=3), "n_positions": Categorical(choices=(4, 5))}
SPECS: dict[str, Sweep] = {
    "random": sweeps.small_sweep(trials=7, replicates=2),
    "qmc": sweeps.small_sweep(sampler="qmc", trials=6, replicates=1),
    "grid": sweeps.small_sweep(
        sampler="grid", trials=6, replicates=1, space={"n_steps": 10, "n_categories": 3, **GRID}
    ),
    "sequential": sweeps.small_sweep(trials=3, replicates=Sequential(batch=2, at_most=6, width=0.6)),
}
RANDOM = SPECS["random"]


def _faults(path: PlaceName) -> list[str]:
    """What an audit finds, but for MLflow, which is out of reach."""
    return [str(each) for each in audit(path).problems if "mlflow-sync" not in each.fix]


@pytest.fixture(scope="module")
def one(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep of one driver."""
    path = tmp_path_factory.mktemp("one") / "s"
    assert shards.run(RANDOM, path).finished
    return path


@pytest.fixture(scope="module")
def three(no_mlflow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same by three drivers, of which the last begins first."""
    path = tmp_path_factory.mktemp("three") / "s"
    for index in (2, 0, 1):
        assert shards.run(RANDOM, path, Shard(index, 3)).finished
    return path


@pytest.fixture
def copied(three: Path, tmp_path: Path) -> Path:
    """A copy of `three`, to be damaged."""
    return Path(shutil.copytree(three, tmp_path / "s"))


def _interrupted(path: PlaceName, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SweepLoop, "_commit", sweeps.interrupt_after(1))
        assert not shards.run(RANDOM, path, shard, pack_size=2).finished


def test_the_union_is_the_sweep_of_one_driver(one: Path, three: Path) -> None:
    shards.assert_equal(three, one)
    whole = SweepDirectory.open(three)
    assert whole.finished
    # What tells their runs in MLflow apart.
    assert [each.name for each in whole.parts] == [f"{whole.sweep}.shard-{index}" for index in range(3)]
    assert _faults(three) == []
    told = sorted((trial for each in whole.parts for trial in read_trials(each)), key=lambda trial: trial.number)
    expected = read_trials(SweepDirectory.open(one))
    assert [(each.number, each.params, each.values) for each in told] == [
        (each.number, each.params, each.values) for each in expected
    ]


def test_a_fork_is_the_same_in_a_shard_in_all_shards_and_in_the_sweep_of_one_driver(one: Path, three: Path) -> None:
    found = [
        fork(SweepDirectory.open(path), "4/1", step=3, redraw="kick", n=2, size=0.1)
        for path in (one, three, three / "shard-1")
    ]
    assert {each.difference for each in found} == {""}
    assert len({tuple(each.trainings["eval_loss"].to_pylist()) for each in found}) == 1


@pytest.mark.parametrize(
    ("name", "n_drivers"), [("random", 1), ("random", 2), ("qmc", 2), ("grid", 3), ("sequential", 2)]
)
@pytest.mark.sample("grid-3")
def test_by_every_sampler_and_number_of_drivers(name: str, n_drivers: int, tmp_path: Path) -> None:
    shards.run(SPECS[name], tmp_path / "one")
    for index in range(n_drivers):
        shards.run(SPECS[name], tmp_path / "s", Shard(index, n_drivers))
    shards.assert_equal(tmp_path / "s", tmp_path / "one")
    assert _faults(tmp_path / "s") == []


def test_a_shard_that_was_killed_is_continued_while_another_process_has_its_neighbour(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "PREDECESSOR_SECONDS", 0.0)
    path = tmp_path / "s"
    _interrupted(path, Shard(1, 3), monkeypatch)
    shards.run(RANDOM, path, Shard(0, 3))
    whole = SweepDirectory.open(path)
    assert whole.shortfall == "of 3 shards, 1 not begun (2) and 1 not finished (1)"
    assert (whole.finished, audit(path).finished, _faults(path)) == (False, False, [])
    with closing(place_of(path / "shard-1").lock("run")):
        with pytest.raises(TakenError, match="shard-1"):
            shards.run(RANDOM, path, Shard(1, 3))
        assert shards.run(RANDOM, path, Shard(2, 3)).finished
        # Left to the other process.
        assert not resume_sweep(path, HERE, Console(stderr=True)).finished
    assert resume_sweep(path, HERE, Console(stderr=True)).finished
    shards.assert_equal(path, one)
    assert _faults(path) == []


def test_of_drivers_that_begin_at_once_one_makes_the_sweep(three: Path, tmp_path: Path) -> None:
    found = SweepDirectory.open(three)
    (environment,) = found.environments.values()

    create = partial(SweepDirectory.create, spec=found.spec, defaults=found.defaults, environment=environment)

    def begin(index: int) -> SweepDirectory:
        return entry.begin_shard(tmp_path / "s", Shard(index, 8), found.spec, None, environment, create)

    with ThreadPoolExecutor(8) as threads:
        begun = list(threads.map(begin, range(8)))
    assert {each.sweep for each in begun} == {SweepDirectory.open(tmp_path / "s").sweep}
    assert [each.of_shard for each in SweepDirectory.open(tmp_path / "s").parts] == [Shard(i, 8) for i in range(8)]


def test_a_link_in_the_place_of_a_shard_is_neither_read_nor_written(copied: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (copied / "shard-1").rename(elsewhere)
    (copied / "shard-1").symlink_to(elsewhere)
    assert SweepDirectory.open(copied).shortfall == "of 3 shards, 1 not begun (1)"
    with pytest.raises(UserError, match="a symbolic link"):
        shards.run(RANDOM, copied, Shard(1, 3))


def test_a_driver_in_another_environment_is_refused(copied: Path) -> None:
    found = SweepDirectory.open(copied)
    shutil.rmtree(copied / "shard-1")
    (environment,) = found.environments.values()
    for name, version, words in (
        ("numpy", "99", r"numpy .* -> 99.*install the first driver's library versions and code on this machine"),
        (
            "engine",
            "blocks, by another compiler",
            "--engine: got .*another driver has just begun the sweep with the engine vmapped",
        ),
    ):
        other = environment.model_copy(update={"versions": {**environment.versions, name: version}})
        with pytest.raises(UserError, match=words):
            entry.begin_shard(copied, Shard(1, 3), found.spec, None, other, _never)
    assert not (copied / "shard-1").exists()


def _never(*_: object) -> SweepDirectory:
    raise AssertionError


@pytest.mark.parametrize(
    ("changes", "shard", "words"),
    [
        (
            {"sampler": "tpe"},
            Shard(0, 2),
            "'sampler=tpe', expected a sweep that several drivers can share, with random, qmc or grid: ",
        ),
        ({"seconds": 9.0}, Shard(0, 2), "'seconds=9.0', expected a sweep .* with a number of trials as the only limit"),
        (
            {"objective": LossQuantile(), "pruner": MedianPruner()},
            Shard(0, 2),
            "'a pruner', expected a sweep that several drivers can share, with no pruner: it",
        ),
        (
            {"storage": "sqlite:////tmp/study.db"},
            Shard(0, 2),
            "'a storage', expected a sweep .* with no storage: each driver",
        ),
        ({}, Shard(0, 8), "'0/8 of 7 trials', expected a sweep .* with at most as many drivers"),
    ],
    ids=["learns", "seconds", "pruner", "storage", "more drivers than trials"],
)
def test_what_cannot_be_divided_is_refused(
    changes: dict[str, object], shard: Shard, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=f"--shard: got {words}"):
        shards.run(RANDOM.but(**changes), tmp_path / "s", shard)
    assert not (tmp_path / "s").exists()


def test_a_directory_holds_one_sweep_divided_in_one_way(one: Path, three: Path, tmp_path: Path) -> None:
    for path, spec, shard, words in (
        (three, RANDOM, Shard(0, 2), "which has 3 shards', expected the number .*; write --shard I/3"),
        (three, RANDOM, None, "a sweep of 3 shards', expected the number of the shard to run.*resume"),
        (one, RANDOM, Shard(0, 3), "which has one driver', expected the number .*; leave --shard out"),
        (three, RANDOM.but(seed=6), Shard(0, 3), "which contains another sweep"),
    ):
        with pytest.raises(UserError, match=words):
            shards.run(spec, path, shard)
    with pytest.raises(UserError, match=r"a sweep of several drivers.*--seed"):
        resume_sweep(three, HERE, Console(stderr=True), more_trials=2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="a new or empty directory"):
        shards.run(RANDOM, tmp_path / "mine", Shard(0, 2))


def test_every_reader_takes_the_directory_for_one_sweep(one: Path, three: Path) -> None:
    sql = "select count(*), count(distinct trial), count(distinct sweep) from trainings"
    (counted,) = open_sweep(three).sql(sql).to_pylist()
    assert list(counted.values()) == [14, 7, 1]
    assert open_sweep(three).stuck_rates().overall == open_sweep(one).stuck_rates().overall
    assert compare(one, three).n_pairs == 14
    page, _ = make_report([three])
    assert "14 trainings of 7 trials" in page
    said = command("status", three).out
    assert ": finished" in said
    assert "7 of 7 with trainings" in said
    assert command("list", three.parent).out.count("finished") == 1
    assert "trial 4, replicate 1" in command("replay", three, "4/1").out
    assert command("query", three, sql).code == 0


def test_a_reader_opens_more_files_than_a_shell_allows(three: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 4, before[1]))
    try:
        assert Ledger(three).trainings().num_rows == 14
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_is_not_there_is_said(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(copied / "shard-0")
    assert not SweepDirectory.open(copied).finished
    (copied / "shard-1" / "course.json").unlink()
    words = "of 3 shards, 1 not begun (0) and 1 not finished (1)"
    pack = PackUnderWay(pack="p", n_trainings=4, step=3, n_steps=9)
    Beacon(place_of(copied / "shard-1")).show("training", 2, [pack])
    said = command("status", copied).out
    assert words in said
    assert "not finished; " not in said.partition("\n")[0]
    assert "  shard-1          running (training)" in said
    assert "under way   4 trainings" in said
    assert "begin it with  attnsweep run SPEC --shard 0/3 --dir" in said
    assert words in command("query", copied, "select count(*) from trainings").err
    assert words in make_report([copied])[0]
    assert words in audit(copied).checks[0].line
    open_sweep(copied)
    assert words in caplog.text
    resumed = command("resume", copied, "--local", "--no-report")
    assert resumed.code == 130
    assert f"begin the other shards with: attnsweep run SPEC --shard I/3 --dir {copied}" in resumed.err
    assert "of 3 shards, 1 not begun (0)" in resumed.err
    assert SweepDirectory.open(copied).seconds_spent > 0


def test_a_sweep_whose_shards_have_no_rows_yet_is_read(three: Path, tmp_path: Path) -> None:
    shutil.copytree(three, tmp_path / "s", ignore=shutil.ignore_patterns("shard-*"))
    assert "param_init_sigma" in Ledger(tmp_path / "s").trainings().column_names
    assert not SweepDirectory.open(tmp_path / "s").finished
    with pytest.raises(UserError, match="of which none has begun"):
        SweepDirectory.open(tmp_path / "s").with_files()
    # As a driver leaves it that is killed before it has made its shard's record.
    (tmp_path / "s" / "shard-0" / "code").mkdir(parents=True)
    assert shards.run(RANDOM, tmp_path / "s", Shard(0, 3)).finished


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 100_000, '{"shards": []}', '{"shards": "3"}', '{"shards": Infinity}', '{"shards": -1}']
)
def test_a_strange_record_makes_no_shards(text: str, tmp_path: Path) -> None:
    (tmp_path / "shard-0").mkdir()
    (tmp_path / "sweep.json").write_text(text)
    assert shards_of(place_of(tmp_path)) == []


def test_audit_names_what_is_in_the_wrong_shard(copied: Path) -> None:
    for table in TABLES:
        for file in (copied / "shard-0" / table).glob("*.parquet"):
            shutil.copy(file, copied / "shard-1" / table)
    assert [each.partition(";")[0] for each in _faults(copied)] == [
        "shard 1: 3 trials trained that were never asked for: 0, 3, 6"
    ]
    # The same rows twice are one: a file's name says what it holds.
    assert Ledger(copied).trainings().num_rows == 14
    shutil.rmtree(copied / "shard-1")
    # No shard of this sweep has such a number.
    shutil.copytree(copied / "shard-2", copied / "shard-7")
    assert len(SweepDirectory.open(copied).parts) == 2
    (copied / "shard-2").rename(copied / "shard-1")
    assert any("another shard than" in each for each in _faults(copied))


def test_the_audit_names_the_types_of_machine_of_all_drivers(copied: Path) -> None:
    assert not [each.line for each in audit(copied).checks if "types" in each.line]
    assert command("compact", copied).code == 0
    part = SweepDirectory.open(copied / "shard-1")
    (environment,) = part.environments.values()
    in_environment(part, environment.on("aarch64, DEFAULT"))
    (line,) = (each.line for each in audit(copied).checks if "types" in each.line)
    assert f"on aarch64, DEFAULT, PyTorch {environment.torch}" in line
    assert f"on {environment.machine}, PyTorch {environment.torch}" in line


def test_a_shard_is_compacted(copied: Path, one: Path) -> None:
    assert command("compact", copied).code == 0
    assert [len([*(copied / f"shard-{i}" / "trainings").iterdir()]) for i in range(3)] == [1, 1, 1]
    shards.assert_equal(copied, one)


@pytest.mark.scale
def test_the_last_driver_draws_the_report_of_all(tmp_path: Path) -> None:
    spec, path = tmp_path / "small.json", tmp_path / "s"
    spec.write_text(RANDOM.but(trials=3).to_json())
    words = ("run", spec, "--dir", path, "--local", "--or-resume", "--json", "--shard")
    assert command(*words, "1/2").code == 0
    assert not (path / "report").exists()
    last = command(*words, "0/2")
    assert (path / "report" / "report.html").exists()
    assert json.loads(last.out.splitlines()[-1])["trials"] == 2
    assert json.loads(command("resume", path, "--local", "--json").out.splitlines()[-1])["trials"] == 3


@pytest.mark.usefixtures("s3")
def test_a_shard_in_an_object_store_is_taken_over_from_another_host(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = new_prefix()
    _interrupted(prefix, Shard(1, 2), monkeypatch)
    shard = place_of(f"{prefix}/shard-1")
    leave_lease(shard)  # type: ignore[arg-type]
    assert shards.run(RANDOM, prefix, Shard(0, 2)).finished
    with pytest.raises(TakenError, match="elsewhere"):
        resume_sweep(shard, HERE, Console(stderr=True))
    monkeypatch.setattr("attnsweep.orchestrator.storage.locks.LEASE_SECONDS", 0.0)
    monkeypatch.setattr("attnsweep.orchestrator.storage.locks._RENEWALS_PER_LEASE", 1e-3)
    assert shards.run(RANDOM, prefix, Shard(1, 2)).finished
    shards.assert_equal(prefix, one)
    assert _faults(prefix) == []
    assert open_sweep(prefix).sql("select count(*) as n from trainings")["n"].to_pylist() == [14]
    apart, inside = place_of(f"{prefix}/shard-1"), prefix.inside("shard-1")
    assert str(inside) == str(apart)
    assert inside.sizes() == apart.sizes()
    assert {*prefix.sizes()} > {f"shard-1/{name}" for name in inside.sizes()}
    assert inside.names("curves") == apart.names("curves")
    assert {*inside.folders()} == {*apart.folders()} >= {"trainings", "curves", "study.journal"}


@pytest.mark.scale
def test_trainers_of_ray_and_this_process_share_a_sweep(one: Path, tmp_path: Path, local_ray: str) -> None:
    assert shards.run(RANDOM, tmp_path / "s", Shard(0, 2), local=False, address=local_ray, n_trainers=2).finished
    assert shards.run(RANDOM, tmp_path / "s", Shard(1, 2)).finished
    shards.assert_equal(tmp_path / "s", one)


@pytest.mark.scale
def test_each_shard_has_a_run_of_its_own_in_one_experiment(
    tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    path, spec = tmp_path / "s", RANDOM.but(trials=4, replicates=1)
    run = partial(shards.run, spec, path)
    assert run(Shard(0, 2)).in_mlflow
    assert run(Shard(1, 2)).in_mlflow
    found = audit(path, mlflow_uri)
    assert (found.problems, found.counts["logged"]) == ([], 4)
    assert [each.line for each in found.checks if "MLflow" in each.line] == []
