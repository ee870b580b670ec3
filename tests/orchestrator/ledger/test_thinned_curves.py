"""Curves with fewer probes, by `curves_every` and `attnsweep gc --thin-curves`: which stay, and that no row is lost."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.compaction import compact
from attnsweep.orchestrator.ledger.garbage import collect
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import SORT_KEYS, in_order, thinned
from attnsweep.orchestrator.ledger.verification import verify
from attnsweep.orchestrator.storage.run_records import read_replays
from attnsweep.orchestrator.storage.sources import Source
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Float, Sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.commands import command
from tests.orchestrator.small_sweep import STEPS, commit, open_writer, small_sweep, trial_rows
from tests.orchestrator.trained_sweep import trained_sweep

ENDED_EARLY = {1: [9.0, 8.0, 7.0], 2: [9.0]}
"""Losses of the replicates that took fewer steps."""


def _train(directory: SweepDirectory, *trials: int) -> None:
    with open_writer(directory) as writer:
        for trial in trials:
            commit(writer, trial_rows(trial, ["solved"] * 3, sweep=directory.sweep), ENDED_EARLY)


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    directory = SweepDirectory.create(tmp_path / "s", small_sweep("s", trials=3, replicates=3), {})
    _train(directory, 0, 1, 2)
    directory.record_run(finished=True, seconds=1.0)
    return directory


def _steps(directory: SweepDirectory) -> dict[tuple[int, int, str], list[int]]:
    rows = Ledger(directory.place).curves().sort_by([("step", "ascending")]).to_pylist()
    found: dict[tuple[int, int, str], list[int]] = {}
    for row in rows:
        found.setdefault((row["trial"], row["replicate"], row["metric"]), []).append(row["step"])
    return found


WHOLE = {0: [*STEPS], 1: [0, 1, 2], 2: [0]}
HALF = {0: [0, 2, 8], 1: [0, 2], 2: [0]}
FOURTH = {0: [0, 8], 1: [0, 2], 2: [0]}


def _held(directory: SweepDirectory) -> list[dict[int, list[int]]]:
    """The steps by replicate, of each trial; the same of both metrics."""
    found = _steps(directory)
    held = []
    for trial in sorted({trial for trial, _, _ in found}):
        of_losses, of_others = (
            {replicate: found[trial, replicate, metric] for replicate in range(3)} for metric in ("eval_loss", "loss")
        )
        assert of_losses == of_others
        held.append(of_losses)
    return held


def test_every_second_probe_stays_and_the_last(directory: SweepDirectory) -> None:
    before, rows = _held(directory), Ledger(directory.place).trainings()
    words = ("gc", directory.place, "--thin-curves", 2)
    assert f"free them with: attnsweep gc {directory.place} --thin-curves 2 --delete" in command(*words).out
    assert _held(directory) == before == [WHOLE] * 3
    assert command(*words, "--delete").code == 0
    assert _held(directory) == [HALF] * 3
    assert Ledger(directory.place).trainings().sort_by("trial").equals(rows.sort_by("trial"))
    assert Ledger(directory.place).curves_every() == 2
    assert verify(directory.place, directory.spec_sha256) == []
    assert command(*words, "--delete").out == "nothing can go\n"


def test_what_comes_later_is_whole_until_it_is_thinned_too(directory: SweepDirectory) -> None:
    collect(directory.place, delete=True, thin=2)
    _train(directory, 3, 4)
    assert _held(directory) == [HALF] * 3 + [WHOLE] * 2
    compact(directory.place)
    assert _held(directory) == [HALF] * 3 + [WHOLE] * 2
    assert len(directory.place.names("curves")) == 2
    with pytest.raises(UserError, match="--thin-curves: got 3, expected a multiple of 2"):
        collect(directory.place, delete=True, thin=3)
    collect(directory.place, delete=True, thin=4)
    assert _held(directory) == [FOURTH] * 5
    assert len(directory.place.names("curves")) == 1


def test_merges_of_later_commits_leave_thinned_curves_apart(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    collect(directory.place, delete=True, thin=2)
    monkeypatch.setattr("attnsweep.orchestrator.ledger.compaction.MAX_FRAGMENTS", 1)
    _train(directory, 3, 4, 5)
    assert len(directory.place.names("curves")) == 2
    assert _held(directory) == [HALF] * 3 + [WHOLE] * 3


def test_trainings_that_are_told_so_keep_one_probe_in_three_and_replay_as_before(tmp_path: Path) -> None:
    spec = Sweep(
        name="few",
        workload="category_pairs",
        space={"n_steps": 20, "learning_rate": Float(1e-3, 1e-2, log=True), "stop_when_solved": False},
        sampler="random",
        trials=2,
        replicates=2,
    )
    whole = Ledger(trained_sweep(tmp_path / "whole", spec).place)
    few = trained_sweep(tmp_path / "few", spec.but(curves_every=3), pack_size=1)
    ledger = Ledger(few.place)
    assert whole.curves_every() == 1
    assert ledger.curves_every() == 3
    every, kept = (in_order(each.curves(), SORT_KEYS["curves"]) for each in (whole, ledger))
    assert kept.equals(thinned(every, 3))
    assert kept.num_rows < every.num_rows / 2
    found = read_replays(few)
    assert found is not None
    assert not found.disagreeing
    assert found.largest == 0.0


def test_a_sweep_that_goes_on_or_was_merged_is_refused(directory: SweepDirectory, tmp_path: Path) -> None:
    before = _held(directory)
    directory.record_run(finished=False, seconds=1.0)
    with pytest.raises(UserError, match=r"--thin-curves: got .*unfinished.* attnsweep resume"):
        collect(directory.place, delete=True, thin=2)
    assert _held(directory) == before
    source = Source(sweep="a", place="a", spec_sha256="0" * 64, first_trial=0, n_trainings=1)
    merged = SweepDirectory.create(tmp_path / "merged", small_sweep("merged"), {}, sources=(source,))
    merged.record_run(finished=True, seconds=1.0)
    _train(merged, 0)
    with pytest.raises(UserError, match=r"the merge .* of several sweeps"):
        collect(merged.place, delete=True, thin=2)
