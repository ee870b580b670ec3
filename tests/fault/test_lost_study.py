"""A ledger of another study or another sweep: nothing is trained, and the message names both."""

import re
import shutil
from pathlib import Path

import pytest

from attnsweep.orchestrator.ledger.fragments import TABLES
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps

pytestmark = pytest.mark.usefixtures("no_mlflow")


def test_trials_that_the_study_does_not_know_are_not_trained_a_second_time(tmp_path: Path) -> None:
    path = tmp_path / "s"
    sweeps.run(sweeps.small_sweep(trials=3), path)
    before = sweeps.outcomes(path)
    study = (path / STUDY_FILE).read_bytes()
    (path / STUDY_FILE).unlink()
    for _ in range(2):
        # The first resume has created a new, empty study.
        with pytest.raises(
            UserError,
            match=re.escape(
                f"{path}/{STUDY_FILE}: got 'a study without 3 trials that are in the ledger, the"
                " first of which is trial 0'"
            )
            + r", expected a study that contains every trained trial; restore the study from a copy;"
            r" to see what is wrong: attnsweep audit ",
        ):
            sweeps.resume(path)
    assert sweeps.outcomes(path) == before
    assert SweepDirectory.open(path).finished
    (path / STUDY_FILE).write_bytes(study)
    assert sweeps.resume(path).finished
    assert sweeps.outcomes(path) == before


@pytest.mark.scale
def test_rows_of_another_sweep_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for path in (ours, theirs):
        sweeps.run(sweeps.small_sweep(trials=1), path)
    for folder in TABLES:
        shutil.copytree(theirs / folder, ours / folder, dirs_exist_ok=True)
    before = sweeps.outcomes(ours)
    names = [SweepDirectory.open(path).sweep for path in (theirs, ours)]
    with pytest.raises(
        UserError,
        match="{}/trainings: got 'trainings of another sweep: {}', expected only trainings of the sweep"
        " that sweep.json describes, {}".format(ours, *names),
    ):
        sweeps.resume(ours)
    assert sweeps.outcomes(ours) == before
