"""Which shard `--shard` names, by number or by a scheduler's variables."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from attnsweep.orchestrator import cli
from attnsweep.orchestrator.cli.run_options import parse_shard
from attnsweep.orchestrator.storage.shards import Shard, numbers_in_words
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep

VARIABLES = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "JOB_COMPLETION_INDEX")
SLURM = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}


@pytest.fixture(autouse=True)
def _no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "variables", "shard"),
    [
        (None, SLURM, None),
        ("0/1", {}, Shard(0, 1)),
        ("2/5", SLURM, Shard(2, 5)),
        ("auto", SLURM, Shard(3, 8)),
        # A part of the array is queued again: the number of tasks is another then.
        ("auto/8", {**SLURM, "SLURM_ARRAY_TASK_COUNT": "1"}, Shard(3, 8)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "0"}, Shard(0, 4)),
    ],
)
def test_a_shard_is_read(
    text: str | None, variables: dict[str, str], shard: Shard | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert parse_shard(text) == shard


@pytest.mark.parametrize(
    ("text", "variables", "words"),
    [
        (
            "4/4",
            {},
            "--shard: got '4/4', expected I/N: shard number I from 0 to N - 1 of N shards, where N is"
            " at most 100000; write for example --shard 0/4",
        ),
        ("-1/4", {}, "got '-1/4'"),
        ("1", {}, "got '1'"),
        ("0/0", {}, "got '0/0'"),
        ("0/100001", {}, "got '0/100001'"),
        ("auto", {}, "none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX, SLURM_ARRAY_TASK_COUNT"),
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, r"JOB_COMPLETION_INDEX=1'.*or give --shard auto/N"),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "8"}, "number the tasks of the job array from 0"),
    ],
)
def test_what_names_no_shard_is_refused(
    text: str, variables: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=words):
        parse_shard(text)


def test_all_drivers_must_find_the_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attnsweep", "run", "quickstart", "--shard", "0/2"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert (
        "--shard: got 'a command without --dir', expected a directory that all drivers find"
    ) in capsys.readouterr().err


def test_the_trials_of_all_shards_are_those_of_the_sweep() -> None:
    for n_trials, count in ((10, 3), (4, 4), (1, 1), (9, 2)):
        shards = [Shard(index, count) for index in range(count)]
        own = [list(each.first(each.n_of(n_trials))) for each in shards]
        assert sorted(trial for each in own for trial in each) == list(range(n_trials))
        for shard, trials in zip(shards, own, strict=True):
            assert [shard.number(trial) for trial in trials] == list(range(len(trials)))
            assert [shard.trial(number) for number in range(len(trials))] == trials


def test_a_record_holds_no_impossible_shard(tmp_path: Path) -> None:
    for index, count in ((0, 0), (2, 2), (-1, 3), (0, 100_001)):
        with pytest.raises(ValueError, match=f"shard {index} of {count}"):
            Shard(index, count)
    # A reader would look at each.
    with pytest.raises(ValidationError, match="shards"):
        SweepDirectory.create(tmp_path / "s", small_sweep("s"), {}, shards=10**9)


def test_numbers_are_told_in_ranges() -> None:
    assert numbers_in_words([5, 0, 3, 4, 9]) == "0, 3 to 5, 9"
