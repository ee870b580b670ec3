"""Options of commands that run sweeps: resources, with defaults from the environment, and the shard of a driver."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.main import get_group

from attnsweep.orchestrator.cli import app
from attnsweep.orchestrator.cli.run_options import parse_shard
from attnsweep.orchestrator.storage.shards import Shard, numbers_in_words
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.across.documents import DOCUMENTS
from tests.orchestrator.conftest import Mistake
from tests.orchestrator.small_sweep import small_sweep


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TRAINERS", "many", "--trainers: got 'many', expected a number of trainers N, or a range MIN..MAX"),
        ("WAIT_NODES", "-1", "Invalid value for '--wait-nodes' (env var: 'ATTNSWEEP_WAIT_NODES')"),
        ("DEVICE", "tpu", "Invalid value for '--device' (env var: 'ATTNSWEEP_DEVICE')"),
        ("ENGINE", "merged", "engine: got 'the engine `merged` with the device auto', expected the device cuda"),
        ("PACK_SIZE", "0", "Invalid value for '--pack-size' (env var: 'ATTNSWEEP_PACK_SIZE')"),
    ],
)
@pytest.mark.usefixtures("no_ray")
def test_a_default_in_the_environment_is_read_and_checked(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    monkeypatch.setenv(f"ATTNSWEEP_{variable}", value)
    assert mistake("run", "quickstart").startswith(message)


def test_the_command_line_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    monkeypatch.setenv("ATTNSWEEP_TRAINERS", "2")
    assert "got 'many'" in mistake("run", "quickstart", "--trainers", "many")


def test_local_goes_before_a_cluster_in_the_environment(monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    for variable, value in (("ADDRESS", "auto"), ("TRAINERS", "8"), ("WAIT_NODES", "4"), ("PRIORITY", "1")):
        monkeypatch.setenv(f"ATTNSWEEP_{variable}", value)
    missing = ["resume", "/no/such/sweep"]
    assert mistake(*missing, "--local").startswith("DIR: got '/no/such/sweep'")
    given = mistake(*missing, "--local", "--trainers", "8")
    assert given.startswith("--local: got '--trainers 8'")


def test_commands_that_train_sweeps_have_the_same_options() -> None:
    commands = get_group(app).commands

    def options(name: str) -> dict[str, object]:
        panel = {
            each.name: each for each in commands[name].params if getattr(each, "rich_help_panel", "") == "Resources"
        }
        return {str(each.opts[0]): each.default for each in panel.values()}

    assert len(options("run")) == 8
    assert options("verify") == options("run")
    # The engine of a sweep is that of its beginning.
    assert {*options("run")} - {*options("resume")} == {"--engine"}


def test_each_variable_is_documented() -> None:
    variables = {str(each.envvar) for each in get_group(app).commands["run"].params if each.envvar}
    assert len(variables) == 6
    assert [each for each in variables if f"`{each}`" not in DOCUMENTS["clusters.md"]] == []


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
        ("auto", {"JOB_COMPLETION_INDEX": "1"}, r"JOB_COMPLETION_INDEX=1'.*write --shard auto/N"),
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


def test_all_drivers_must_find_the_directory(mistake: Mistake) -> None:
    error = mistake("run", "quickstart", "--shard", "0/2")
    assert error.startswith("--shard: got 'no option --dir', expected an option --dir, so that a later command")


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
