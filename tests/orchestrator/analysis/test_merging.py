"""`attnsweep merge`: several sweeps as one directory, with the answers that `open_sweep` of several gives."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from attnsweep import open_sweep
from attnsweep.orchestrator.analysis.merging import merge_sweeps
from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.storage.sources import TRIALS_APART, CutShortError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import sync
from attnsweep.search_spaces import Categorical, Float, Sequential, Sweep
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.user_code import UserCode
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, sweep_on_disk, trial_rows

Sources = tuple[SweepDirectory, SweepDirectory]
ENDS = (["solved"] * 4, ["marginal", "solved", "marginal", "failed"], ["marginal"] * 4)


def finished(path: Path, sigmas: list[float], **changes: Any) -> SweepDirectory:
    spec = small_sweep(path.name, trials=len(sigmas), **changes)
    rows = (
        trial_rows(trial, ENDS[trial % 3], param_init_sigma=sigma, param_learning_rate=0.01 * (1 + trial))
        for trial, sigma in enumerate(sigmas)
    )
    directory = sweep_on_disk(path, spec, *rows)
    directory.record_run(finished=True, seconds=2.0)
    return directory


def empty(path: Path, spec: Sweep, **given: Any) -> SweepDirectory:
    directory = SweepDirectory.create(path, spec, {}, **given)
    directory.place.make_folders(["trainings"])
    directory.record_run(finished=True, seconds=1.0)
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    wide = finished(tmp_path / "wide", [1e-3, 1e-2, 0.1, 1.0])
    narrow = finished(tmp_path / "narrow", [0.02, 0.03], space={"init_sigma": Float(0.02, 0.03), "n_steps": 8})
    return wide, narrow


@pytest.mark.scale
@pytest.mark.slow
def test_answers_are_those_of_the_sweeps_opened_together(sources: Sources, tmp_path: Path) -> None:
    places = [each.place for each in sources]
    merged = merge_sweeps(tmp_path / "all", places)
    together, alone = open_sweep(*places), open_sweep(tmp_path / "all")
    for query in (
        "from trials order by trial",
        "from trainings order by trial, replicate",
        "from curves order by trial, replicate, metric, step",
    ):
        expected, found = together.sql(query), alone.sql(query)
        common = [name for name in found.column_names if name in expected.column_names]
        assert found.num_rows > 0
        assert found.select(common).to_pylist() == expected.select(common).to_pylist()
    assert alone.stuck_rates().overall == together.stuck_rates().overall
    rates = [{each.parameter: each for each in data.stuck_rates().by_parameter} for data in (alone, together)]
    assert rates[0]["init_sigma"].bins == rates[1]["init_sigma"].bins
    assert merged.spec.space["init_sigma"] == Categorical(choices=(0.001, 0.01, 0.02, 0.03, 0.1, 1.0))
    assert (merged.spec.space["n_steps"], merged.spec.trials, merged.seconds_spent) == (8, 6, 4.0)


@pytest.mark.slow
def test_provenance_is_kept_and_audited(sources: Sources, tmp_path: Path) -> None:
    directory = merge_sweeps(tmp_path / "all", [each.place for each in sources])
    for source, kept in zip(sources, SweepDirectory.open(tmp_path / "all").sources, strict=True):
        assert (kept.sweep, kept.place) == (source.sweep, source.place.full_name)
        record = json.loads((tmp_path / "all" / "sources" / f"{kept.sweep}.json").read_text())
        assert record["spec_sha256"] == kept.spec_sha256 == source.spec_sha256
    assert all(each.sweep in directory.note for each in sources)
    assert audit(tmp_path / "all").problems == []
    compact(tmp_path / "all")
    assert audit(tmp_path / "all").problems == []
    trainings = folder_of(directory) / "trainings"
    [name] = directory.place.names("trainings")
    table = pq.read_table(trainings / f"{name}.parquet")
    pq.write_table(table.slice(1), trainings / f"{name}.parquet")
    assert "does not match its checksum" in str(audit(tmp_path / "all").problems)


@pytest.mark.slow
def test_rows_that_are_missing_or_strange_are_found(sources: Sources, tmp_path: Path) -> None:
    directory = merge_sweeps(tmp_path / "all", [each.place for each in sources])
    record = json.loads((tmp_path / "all" / "sweep.json").read_text())
    del record["sha256"]
    record["sources"][0]["n_trainings"] += 1
    record["sources"][1]["sweep"] = "another"
    (folder_of(directory) / "sweep.json").write_text(json.dumps(record))
    said = "\n".join(map(str, audit(tmp_path / "all").problems))
    assert f"{sources[0].sweep} (16, not 17)" in said
    assert f"1 sweeps that were not merged into the directory: {sources[1].sweep}" in said


@pytest.mark.slow
def test_nothing_is_trained_in_it(sources: Sources, tmp_path: Path) -> None:
    merged = merge_sweeps(tmp_path / "all", [each.place for each in sources])
    says = r"got 'a merge of 2 sweeps for analysis'.*give one of the merged sweeps: .*wide"
    for words in (["resume"], ["replay", "0/0"], ["why", "0/0"], ["heads", "0/0"]):
        with pytest.raises(UserError, match=says):
            CliRunner().invoke(app, [words[0], str(merged.place), *words[1:]], catch_exceptions=False)
    with pytest.raises(UserError, match=says):
        sync(merged)


@pytest.mark.slow
def test_the_command_merges_and_status_tells(sources: Sources, tmp_path: Path) -> None:
    words = ["merge", str(tmp_path / "all"), *(str(each.place) for each in sources)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.stdout == f"{tmp_path}/all: 24 trainings of 2 sweeps\n"
    told = CliRunner().invoke(app, ["status", str(tmp_path / "all")], catch_exceptions=False).stdout
    assert f"merged from {sources[0].sweep}, {sources[1].sweep}" in told
    assert "6 of 6 with trainings" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"replicates": 2}, r"replicates=2', expected the value 4"),
        ({"replicates": Sequential()}, "replicates=8..200"),
        ({"sampler": "random"}, "sampler=random"),
        ({"workload": "formal_languages", "space": {}}, "of the workload formal_languages"),
    ],
)
def test_sweeps_that_are_not_one_are_refused(
    change: dict[str, Any], says: str, sources: Sources, tmp_path: Path
) -> None:
    other = empty(tmp_path / "other", small_sweep("other", **change))
    with pytest.raises(UserError, match=says):
        merge_sweeps(tmp_path / "all", [sources[0].place, other.place])
    assert not (tmp_path / "all").exists()


def test_a_merge_goes_to_a_new_place_outside_its_sources(sources: Sources, tmp_path: Path) -> None:
    places = [each.place for each in sources]
    with pytest.raises(UserError, match=r"^OUT: got '.*wide', expected a directory that contains no sweep yet; choose"):
        merge_sweeps(tmp_path / "wide", places)
    with pytest.raises(UserError, match=r"^OUT: got '.*wide/all', expected a directory outside the sweep .*wide; name"):
        merge_sweeps(tmp_path / "wide" / "all", places)
    assert not (tmp_path / "wide" / "all").exists()


def test_sweeps_of_other_code_are_refused(tmp_path: Path) -> None:
    places = []
    for name, text in (("one", "RATE = 1"), ("two", "RATE = 2")):
        code = UserCode(str(tmp_path), "mine.py", {"mine.py": text})
        places.append(empty(tmp_path / name, small_sweep(name), code=code).place)
    with pytest.raises(UserError, match=r"code files that differ from those of the sweep .*one: mine\.py"):
        merge_sweeps(tmp_path / "all", places)
    assert not (tmp_path / "all").exists()


@pytest.mark.slow
def test_unfinished_and_merged_sweeps_are_refused(sources: Sources, tmp_path: Path) -> None:
    first, second = (each.place for each in sources)
    merged = merge_sweeps(tmp_path / "all", [first, second])
    other = finished(tmp_path / "other", [0.5])
    with pytest.raises(UserError, match="sweeps for analysis"):
        merge_sweeps(tmp_path / "more", [other.place, merged.place])
    with pytest.raises(UserError, match="expected different sweeps, each named once"):
        open_sweep(second, merged.place)
    with pytest.raises(UserError, match="expected at least two"):
        merge_sweeps(tmp_path / "more", [first])
    with pytest.raises(UserError, match="named once"):
        merge_sweeps(tmp_path / "more", [first, first])
    with pytest.raises(UserError, match="a directory that contains no sweep yet"):
        merge_sweeps(tmp_path / "all", [first, second])
    sources[1].record_run(finished=False, seconds=1.0)
    with pytest.raises(UserError, match=r"unfinished.*attnsweep resume"):
        merge_sweeps(tmp_path / "more", [first, second])
    assert not (tmp_path / "more").exists()


def test_trials_that_would_have_the_number_of_others_are_refused(sources: Sources, tmp_path: Path) -> None:
    large = sweep_on_disk(
        tmp_path / "large",
        small_sweep("large", trials=TRIALS_APART + 1),
        trial_rows(0, ENDS[0]),
        trial_rows(TRIALS_APART, ENDS[0]),
    )
    large.record_run(finished=True, seconds=1.0)
    says = rf"large: got 'trial {TRIALS_APART}: .*', expected trial numbers below {TRIALS_APART}"
    with pytest.raises(UserError, match=says):
        merge_sweeps(tmp_path / "all", [large.place, sources[0].place])
    assert not (tmp_path / "all").exists()
    with pytest.raises(UserError, match=says):
        open_sweep(large.place, sources[0].place)
    merged = merge_sweeps(tmp_path / "all", [sources[0].place, large.place])
    assert audit(merged.place).problems == []
    with pytest.raises(UserError, match=f"got 'trial {2 * TRIALS_APART}: read"):
        open_sweep(merged.place, sources[1].place)
    assert open_sweep(sources[1].place, merged.place).sql("from trials").num_rows == 8
    assert open_sweep(large.place).sql("from trials").num_rows == 2


def test_a_merge_that_was_cut_short_is_continued_by_the_same_merge_alone(sources: Sources, tmp_path: Path) -> None:
    places = [each.place for each in sources]
    directory = merge_sweeps(tmp_path / "all", places)
    rows = open_sweep(tmp_path / "all").trainings().to_pylist()
    (tmp_path / "all" / "course.json").unlink()
    with pytest.raises(CutShortError):
        SweepDirectory.open(tmp_path / "all")
    with pytest.raises(CutShortError, match=r"repeat the merge with: attnsweep merge .*all .*wide .*narrow; or remove"):
        merge_sweeps(tmp_path / "all", places[::-1])
    with closing(directory.place.lock("merge")), pytest.raises(UserError, match=r"another process works on \(merge"):
        merge_sweeps(tmp_path / "all", places)
    assert merge_sweeps(tmp_path / "all", places).sweep == directory.sweep
    assert open_sweep(tmp_path / "all").trainings().to_pylist() == rows
    assert audit(tmp_path / "all").problems == []


def test_a_sweep_with_trainings_that_are_there_twice_is_not_merged(sources: Sources, tmp_path: Path) -> None:
    wide, narrow = sources
    again = trial_rows(0, ENDS[0], sweep=wide.sweep, param_init_sigma=1e-3, param_learning_rate=0.01)
    with open_writer(wide) as writer:
        commit(writer, again)
    with pytest.raises(UserError, match=rf"{wide.place}/trainings: got '4 trainings that are recorded in more than"):
        merge_sweeps(tmp_path / "all", [wide.place, narrow.place])
    assert not (tmp_path / "all").exists()
