"""Registers all commands of `attnsweep`, grouped into the panels of its help."""

from importlib.metadata import version
from typing import Annotated

import typer
from typer import Option

from attnsweep.orchestrator.cli.answers import running_users_code
from attnsweep.orchestrator.cli.author import new_workload, prepare_corpus, workloads
from attnsweep.orchestrator.cli.care import audit, compact, doctor, mlflow_sync
from attnsweep.orchestrator.cli.literature import reproduce
from attnsweep.orchestrator.cli.pages import docs
from attnsweep.orchestrator.cli.read import compare, list_, query, report, status
from attnsweep.orchestrator.cli.run import resume, run, specs, verify
from attnsweep.orchestrator.cli.training import export, fork, heads, replay, why

WELCOME = """\
attnsweep trains thousands of small attention models and says how many get stuck, and why.

  attnsweep run quickstart --local    train 1,024 models in about half a minute; the summary says how they ended
  attnsweep report DIR                one HTML page with the figures of a sweep; `run` prints DIR
  attnsweep docs tutorial             from this first sweep to a model of your own, in an hour
  attnsweep new-workload my_task      write a training problem of your own that runs as it is
  attnsweep doctor                    check this machine, or a cluster, before a large sweep

All commands: attnsweep --help. One command: attnsweep run --help. Any word: attnsweep docs WORD."""
_PANELS = {
    "Learn": (docs,),
    "Run": (run, resume, verify, specs),
    "Read": (status, list_, query, compare, report),
    "One training": (replay, fork, why, heads, export),
    "Care": (audit, compact, mlflow_sync, doctor),
    "Author": (new_workload, workloads, prepare_corpus),
    "Literature": (reproduce,),
}


app = typer.Typer(
    name="attnsweep",
    help="Run sweeps of small attention models, and measure how often their trainings get stuck.\n\n"
    "First steps: `attnsweep` without arguments. A tutorial: `attnsweep docs tutorial`.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


_OF_USERS_CODE = (
    *(run, resume, verify, report, replay, fork, why, heads, export),
    *(audit, mlflow_sync, workloads, reproduce),
)
"""The commands that run the user's code, which may print."""

for panel, commands in _PANELS.items():
    for command in commands:
        called = running_users_code(command) if command in _OF_USERS_CODE else command
        app.command(command.__name__.strip("_").replace("_", "-"), rich_help_panel=panel)(called)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attnsweep {version('attnsweep')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    show_version: Annotated[
        bool,
        Option("--version", metavar="", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Run sweeps of small attention models, and measure how often their trainings get stuck."""
    del show_version
    if context.invoked_subcommand is None:
        typer.echo(WELCOME)
