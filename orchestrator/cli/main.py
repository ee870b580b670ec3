"""The command line. Fast to import: torch, ray and mlflow are loaded by the commands that need them."""

import atexit
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption
from typer.exceptions import TyperException

from attnsweep.orchestrator.cli.arguments import SweepDir, check_texts
from attnsweep.orchestrator.cli.author import (
    AsJson,
    doctor,
    new_workload,
    prepare_corpus,
    score_heads,
    specs,
    workloads,
)
from attnsweep.orchestrator.cli.run import EXIT_INTERRUPTED, mlflow_sync, resume, run
from attnsweep.orchestrator.cli.training import EXIT_FAULT, audit, check_gradients, forecast, heads, replay, why
from attnsweep.orchestrator.cli.trusting import Trust, trust_code_of
from attnsweep.orchestrator.importing import importing
from attnsweep.orchestrator.running.signals import sigterm_as_ctrl_c
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.errors import PoolError, StoreError, StoreMistakeError, SweepError
from attnsweep.orchestrator.storage.location import as_argument, local_path
from attnsweep.orchestrator.storage.ray_session import new_directory
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console


class _Group(TyperGroup):
    """The commands. A switch takes no value, so that the help shows none."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _show_no_values(command.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        params: list[Any] = super().get_params(ctx)
        _show_no_values(params)
        return params


def _show_no_values(params: Iterable[object]) -> None:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag:
            param.metavar = ""


app = typer.Typer(
    name="attnsweep",
    cls=_Group,
    help="Run sweeps of small attention models, and measure how often their trainings get stuck.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

EXIT_MISTAKE, EXIT_CHANGED = 2, 4
_TYPED_CHARACTERS = 400
"""The length at which Typer's messages are cut, because they repeat what the user typed."""


class Format(StrEnum):
    """The forms in which `query` prints its result."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"attnsweep {version('attnsweep')}")
        raise typer.Exit


app.command()(run)
app.command()(resume)


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""
    del show_version


@app.command()
def status(
    directory: SweepDir,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show it again every two seconds, until the run ends.")
    ] = False,
) -> None:
    """Show the progress of a sweep."""
    with importing(without=("pandas",)):
        from attnsweep.orchestrator.cli.screen.status import follow_status, print_status

    (follow_status if follow else print_status)(directory)


@app.command(name="list")
def list_sweeps(
    directories: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR...]", help="Folders, or s3://BUCKET/PREFIX; default: ./sweeps.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all sweeps below a folder: state, rates, size, tags."""
    with importing(without=("pandas",)):
        from attnsweep.orchestrator.cli.screen.listing import print_list

    print_list(directories or ["sweeps"], as_json=as_json)


@app.command()
def query(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR... SQL",
            help="One sweep directory or several, queried as one; and a query on the views trainings, curves, heads "
            "and trials.",
        ),
    ],
    format_: Annotated[Format, typer.Option("--format", help="Format of the result.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="File to write instead of stdout.")] = None,
) -> None:
    """Query the ledger of one or several sweeps in SQL (DuckDB)."""
    with importing(without=("pandas",)):
        from attnsweep.orchestrator.ledger.query import query_all, render
        from attnsweep.orchestrator.ledger.reader import Ledger
        from attnsweep.orchestrator.storage.output_file import check_output

    *directories, sql = words
    if not directories:
        raise UserError(
            "SQL", given=None, expected="a query after the directory", fix=f'attnsweep query {sql} "FROM trials"'
        )
    if out is not None:
        check_output(out)
    render(query_all([Ledger(each) for each in directories], sql), format_.value, out)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A sweep directory, or s3://BUCKET/PREFIX.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another sweep of the same workload.")],
    by: Annotated[
        str | None,
        typer.Option(metavar="PARAM[,PARAM]", help="Also compare in the bins of a parameter, or the cells of two."),
    ] = None,
    outcome: Annotated[
        str, typer.Option(help="Compare the rate of this outcome; stuck: all that count as stuck.")
    ] = "stuck",
    detail: Annotated[str | None, typer.Option(help="Of this outcome, only trainings with this detail.")] = None,
    at_most: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Exit with code 4 if the 95% interval of the change lies entirely beyond this."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the stuck rates, or those of one outcome, of two sweeps."""
    from attnsweep.orchestrator.cli.screen.comparison import compare_directories, to_json

    comparison = compare_directories(a, b, by, _stderr(), outcome, detail)
    if as_json:
        typer.echo(to_json(comparison))
    if at_most is not None and comparison.rate.exceeds(at_most):
        raise typer.Exit(EXIT_CHANGED)


@app.command()
def compact(directory: SweepDir) -> None:
    """Merge the small files of a ledger into one file per table."""
    from attnsweep.orchestrator.ledger.compaction import compact as compact_ledger

    compact_ledger(directory)


@app.command()
def merge(
    out: Annotated[str, typer.Argument(metavar="OUT", help="New directory, or s3://BUCKET/PREFIX.")],
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="Finished sweeps of one workload.")],
) -> None:
    """Merge several sweeps of one workload into a new directory, for analysis."""
    from attnsweep.orchestrator.analysis.merging import merge_sweeps

    merged = merge_sweeps(out, directories)
    n_trainings = sum(each.n_trainings for each in merged.sources)
    typer.echo(f"{merged.place}: {n_trainings:,} trainings of {len(merged.sources)} sweeps")


@app.command()
def gc(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep directory or several.")],
    delete: Annotated[bool, typer.Option("--delete", help="Remove it; without this flag it is only shown.")] = False,
    thin_curves: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            min=2,
            help="Also thin the curves of finished sweeps: every K-th probe stays, with the first and the last.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a sweep directory no longer needs, and free it."""
    from attnsweep.orchestrator.cli.screen.garbage import collect_garbage

    collect_garbage(directories, delete=delete, thin=thin_curves, as_json=as_json)


@app.command()
def report(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep directory or several.")],
    out: Annotated[Path | None, typer.Option(help="HTML file to write; default: DIR/report/report.html.")] = None,
    why: Annotated[
        bool, typer.Option("--why", help="Also train up to three stuck trainings again, and say why they are stuck.")
    ] = False,
    heads: Annotated[
        int | None,
        typer.Option("--heads", metavar="N", min=1, help="Also train up to N trainings again, for attention maps."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Write it again whenever a ledger has changed, until the run ends.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write one HTML file with figures, and print its path."""
    from attnsweep.orchestrator.report.page import write_report
    from attnsweep.orchestrator.report.watching import watch_report

    for flag, given in (("--why", why), ("--heads", heads)):
        if watch and given:
            raise UserError(flag, given=f"{flag} --watch", expected="one of them", fix="leave --watch out")
    if watch:
        watch_report(directories, out, typer.echo)
        return
    if trust:
        for each in directories:
            trust_code_of(each)
    asks = maps = None
    if why:
        from attnsweep.orchestrator.inspection.why_page import pages_of

        asks = pages_of
    if heads is not None:
        from attnsweep.orchestrator.inspection.shown_heads import maps_of

        maps = partial(maps_of, most=heads)
    typer.echo(write_report(directories, out, asks, maps))


@app.command()
def serve(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep directory or several.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")] = 0,
) -> None:
    """Show the report in a browser on this machine, made again while the sweeps run."""
    from attnsweep.orchestrator.report.serving import serve_report

    serve_report(directories, port, typer.echo)


app.command(name="mlflow-sync")(mlflow_sync)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="What to reproduce; without a name, all reproductions are listed.")
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Directory for the results; default: ./sweeps/<name>-<time>.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="At the size of the publication, where ours is smaller.")
    ] = False,
    corpus: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With your own parallel text, prepared by attnsweep prepare-corpus."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a figure or table of the literature, or of the documentation."""
    from attnsweep.orchestrator.cli.reproductions import find_reproduction, load_reproductions, with_options

    reproductions, errors = load_reproductions()
    for error in errors:
        _complain(str(error))
    if name is None:
        width = max(map(len, reproductions), default=0)
        for each in reproductions.values():
            typer.echo(f"{each.name:{width}}  {each.cost:>6}  {each.title} ({each.source})")
        return
    reproduction = with_options(find_reproduction(name, reproductions), full=full, corpus=corpus)
    path = local_path(new_directory(reproduction.name, directory), "--dir")
    found = reproduction.run(path, _stderr())
    found.print(_stderr())
    if as_json:
        typer.echo(found.to_json())


app.command()(replay)
app.command()(why)
app.command()(heads)
app.command()(audit)
app.command(name="check-gradients")(check_gradients)
app.command()(forecast)
app.command(name="score-heads")(score_heads)
app.command(name="prepare-corpus")(prepare_corpus)
app.command()(doctor)
app.command()(specs)
app.command()(workloads)
app.command(name="new-workload")(new_workload)


def main() -> None:
    """The console script. A user's mistake is one line on stderr and exit code 2."""
    # Before all others, so that it is called after them.
    atexit.register(_hide_leaks)
    if sys.stdout is None:
        # Closed: the next file that is opened would be taken for it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout = os.fdopen(1, "w")
    try:
        with sigterm_as_ctrl_c():
            check_texts(sys.argv[1:])
            code = app(standalone_mode=False)
            _flush()
            if code == EXIT_INTERRUPTED:
                raise KeyboardInterrupt
            sys.exit(code)
    except UserError as error:
        _complain(str(error))
        is_fault = isinstance(error, StoreError) and not isinstance(error, StoreMistakeError)
        sys.exit(EXIT_FAULT if is_fault else EXIT_MISTAKE)
    except SweepError as fault:
        _complain(f"{fault}\nonce the cause is fixed, continue with: attnsweep resume {as_argument(fault.path)}")
        sys.exit(EXIT_FAULT)
    except PoolError as fault:
        _complain(str(fault))
        sys.exit(EXIT_FAULT)
    except TyperException as mistake:
        # The message is empty if there were no arguments: Typer has then printed the help.
        if message := mistake.format_message().rstrip("."):
            _complain(f"{message[:_TYPED_CHARACTERS]}; see attnsweep --help")
        sys.exit(EXIT_MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        # A further one, while Python ends, would be a traceback; now it ends the process, with this code to a shell.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as fault:
        # What writes a file names it; stdout has no name.
        if fault.errno != errno.ENOSPC or fault.filename is not None:
            raise
        # The unwritten rest would fail again at the end.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        _complain(f"cannot write the output: {fault.strerror}")
        sys.exit(EXIT_FAULT)


_LEAKS = r"^(nanobind: (leaked|this is likely)| - (leaked|\.\.\. skipped)|See https://nanobind)"
"""With PyTorch loaded, DuckDB may list objects of its own as leaks at the very end."""


def _hide_leaks() -> None:
    """Takes the lines `_LEAKS` from what is still written to stderr; everything else stays."""
    _flush()
    grep = shutil.which("grep")
    if not {"duckdb", "torch"} <= sys.modules.keys() or grep is None:
        return
    filtering = subprocess.Popen([grep, "--line-buffered", "-vE", _LEAKS], stdin=subprocess.PIPE, stdout=2)
    assert filtering.stdin is not None
    os.dup2(filtering.stdin.fileno(), 2)


def _flush() -> None:
    """Writes what is buffered of stdout, unless it is closed."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _complain(text: str) -> None:
    """Prints a message on stderr, without credentials or control characters."""
    from attnsweep.orchestrator.terminal import plain

    typer.echo(f"attnsweep: {plain(without_credentials(text))}", err=True)


def _stderr() -> "Console":
    return _console(stderr=True)


def _console(*, stderr: bool) -> "Console":
    from attnsweep.orchestrator.terminal import PlainConsole

    return PlainConsole(stderr=stderr)
