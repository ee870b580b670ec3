"""Options of commands that run sweeps: resources, with defaults from the environment, and the shard of a driver."""

import pytest

from attnsweep.orchestrator.cli.run_options import parse_shard
from attnsweep.orchestrator.storage.shards import Shard
from attnsweep.workloads.errors import UserError
from tests.orchestrator.conftest import Mistake


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TRAINERS", "many", "--trainers"),
        ("WAIT_NODES", "-1", "Invalid value for '--wait-nodes' (env var: 'ATTNSWEEP_WAIT_NODES')"),
        ("DEVICE", "tpu", "Invalid value for '--device' (env var: 'ATTNSWEEP_DEVICE')"),
        ("ENGINE", "merged", "Invalid value for '--engine' (env var: 'ATTNSWEEP_ENGINE')"),
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


@pytest.mark.parametrize(("text", "shard"), [(None, None), ("0/1", Shard(0, 1)), ("2/5", Shard(2, 5))])
def test_a_shard_is_read(text: str | None, shard: Shard | None) -> None:
    assert parse_shard(text) == shard


@pytest.mark.parametrize("text", ["4/4", "-1/4", "1", "0/0", "auto"])
def test_what_names_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_shard(text)
    assert refused.value.subject == "--shard"


def test_the_trials_of_all_shards_are_those_of_the_sweep() -> None:
    for n_trials, count in ((10, 3), (4, 4), (1, 1), (9, 2)):
        shards = [Shard(index, count) for index in range(count)]
        own = [list(each.first(each.n_of(n_trials))) for each in shards]
        assert sorted(trial for each in own for trial in each) == list(range(n_trials))
        for shard, trials in zip(shards, own, strict=True):
            assert [shard.number(trial) for trial in trials] == list(range(len(trials)))
            assert [shard.trial(number) for number in range(len(trials))] == trials


def test_there_is_no_impossible_shard() -> None:
    for index, count in ((0, 0), (2, 2), (-1, 3)):
        with pytest.raises(ValueError, match=f"shard {index} of {count}"):
            Shard(index, count)
