"""Defaults of resources that stand in the environment."""

import sys

import pytest
from typer.main import get_group

from attnsweep.orchestrator import cli
from tests.across.documents import DOCUMENTS


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TRAINERS", "many", "--trainers: got 'many', expected N or MIN..MAX"),
        ("WAIT_NODES", "-1", "Invalid value for '--wait-nodes' (env var: 'ATTNSWEEP_WAIT_NODES')"),
        ("DEVICE", "tpu", "Invalid value for '--device' (env var: 'ATTNSWEEP_DEVICE')"),
        ("PRIORITY", "first", "Invalid value for '--priority' (env var: 'ATTNSWEEP_PRIORITY')"),
        ("ENGINE", "merged", "engine: got 'the engine merged with the device auto', expected the device cuda"),
        ("PACK_SIZE", "0", "Invalid value for '--pack-size' (env var: 'ATTNSWEEP_PACK_SIZE')"),
    ],
)
@pytest.mark.usefixtures("no_ray")
def test_a_default_in_the_environment_is_read_and_checked(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"ATTNSWEEP_{variable}", value)
    assert _mistake(["run", "quickstart"], monkeypatch, capsys).startswith(f"attnsweep: {message}")


def test_the_command_line_goes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNSWEEP_TRAINERS", "2")
    assert "got 'many'" in _mistake(["run", "quickstart", "--trainers", "many"], monkeypatch, capsys)


def test_local_goes_before_a_cluster_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, value in (("ADDRESS", "auto"), ("TRAINERS", "8"), ("WAIT_NODES", "4"), ("PRIORITY", "1")):
        monkeypatch.setenv(f"ATTNSWEEP_{variable}", value)
    missing = ["resume", "/no/such/sweep"]
    assert _mistake([*missing, "--local"], monkeypatch, capsys).startswith("attnsweep: DIR: got '/no/such/sweep'")
    given = _mistake([*missing, "--local", "--trainers", "8"], monkeypatch, capsys)
    assert given.startswith("attnsweep: --local: got '--trainers 8'")


def test_commands_that_train_sweeps_have_the_same_options() -> None:
    commands = get_group(cli.app).commands

    def options(name: str) -> dict[str, object]:
        panel = {
            each.name: each for each in commands[name].params if getattr(each, "rich_help_panel", "") == "Resources"
        }
        return {str(each.opts[0]): each.default for each in panel.values()}

    assert len(options("run")) == 9
    assert options("verify") == options("run")
    # The engine of a sweep is that of its beginning.
    assert {*options("run")} - {*options("resume")} == {"--engine"}


def test_each_variable_is_documented() -> None:
    variables = {str(each.envvar) for each in get_group(cli.app).commands["run"].params if each.envvar}
    assert len(variables) == 7
    assert [each for each in variables if f"`{each}`" not in DOCUMENTS["clusters.md"]] == []


def _mistake(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(sys, "argv", ["attnsweep", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    return capsys.readouterr().err
