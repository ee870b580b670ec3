"""Commands that read sweeps. Fast to import: every command loads its libraries when it runs."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from typer import Argument, Option

from attnsweep.orchestrator.cli.answers import EXIT_CHANGED, answer, tell
from attnsweep.orchestrator.cli.arguments import AsJson, SweepDir, SweepDirs
from attnsweep.orchestrator.storage.output_file import check_output
from attnsweep.workloads.errors import UserError

Format: TypeAlias = Literal["table", "csv", "json", "parquet"]


def status(
    directory: SweepDir,
    follow: Annotated[
        bool, Option("--follow", metavar="", help="Update every two seconds, until the run ends.")
    ] = False,
) -> None:
    """Show the progress of a sweep."""
    from attnsweep.orchestrator.cli.screen.status import follow_status, print_status

    (follow_status if follow else print_status)(directory)


def list_(
    directories: Annotated[
        list[str] | None, Argument(metavar="[DIR...]", help="Folders, or s3://BUCKET/PREFIX; default: ./sweeps.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all sweeps below a folder: state, stuck and solved rates, size, tags."""
    from attnsweep.orchestrator.cli.screen.listing import print_list

    print_list(directories or ["sweeps"], as_json=as_json)


def query(
    words: Annotated[
        list[str],
        Argument(
            metavar="DIR... SQL",
            help="One sweep directory or several, queried as one; and a query on the views trainings, curves, heads "
            "and trials, and the table outcomes.",
        ),
    ],
    format_: Annotated[Format, Option("--format", help="parquet needs --out.")] = "table",
    out: Annotated[Path | None, Option(help="File to write instead of stdout.")] = None,
) -> None:
    """Query the ledger of one or several sweeps in SQL (DuckDB)."""
    from attnsweep.orchestrator.ledger.query import query_all, render
    from attnsweep.orchestrator.ledger.reader import Ledger

    if len(words) == 1:
        fix = f'write for example: attnsweep query {words[0]} "FROM trials"'
        raise UserError("SQL", given=None, expected="an SQL query after the directory", fix=fix)
    *directories, sql = words
    if out is not None:
        check_output(out)
    ledgers = [Ledger(directory) for directory in directories]
    render(query_all(ledgers, sql), format_, out)


def compare(
    a: Annotated[str, Argument(metavar="A", help="A sweep directory, or s3://BUCKET/PREFIX.")],
    b: Annotated[str, Argument(metavar="B", help="Another sweep of the same workload.")],
    by: Annotated[
        str | None,
        Option(metavar="PARAM[,PARAM]", help="Also compare in the bins of a parameter, or the cells of two."),
    ] = None,
    outcome: Annotated[str, Option(help="Compare the rate of this outcome; stuck: all that count as stuck.")] = "stuck",
    at_most: Annotated[
        float | None,
        Option(min=0, max=1, help="Exit with code 4 if the 95% interval of the change lies entirely beyond this."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare how often trainings get stuck, or end with one outcome, in two sweeps."""
    from attnsweep.orchestrator.analysis.comparison import compare as compare_sweeps
    from attnsweep.orchestrator.analysis.tables import to_json

    comparison = compare_sweeps(a, b, by=by, outcome=outcome)
    answer(comparison.print, partial(to_json, comparison), as_json=as_json, on_stderr=True)
    if at_most is not None and comparison.rate.exceeds(at_most):
        raise typer.Exit(EXIT_CHANGED)


def report(
    directories: SweepDirs,
    out: Annotated[Path | None, Option(help="HTML file to write; default: DIR/report/report.html.")] = None,
    outcome: Annotated[
        str | None,
        Option(help="Make the report about the rate of this outcome; default: the objective's, else stuck."),
    ] = None,
    bins: Annotated[
        int | None, Option(min=1, max=64, help="Equal parts of each range; default: by the number of trials.")
    ] = None,
) -> None:
    """Write a report on sweeps as one HTML file with figures, and print its path."""
    from attnsweep.orchestrator.report.page import write_report

    tell(write_report(directories, out, outcome, bins))
