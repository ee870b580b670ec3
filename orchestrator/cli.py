"""The command line. Light to import: torch, ray and mlflow are loaded by the commands that need them."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.exceptions import TyperException

from orchestrator.credentials import without_credentials
from orchestrator.errors import PoolError, SweepError
from orchestrator.places.location import as_argument, local_path, locate
from orchestrator.signals import sigterm_as_ctrl_c
from workloads.errors import SpecError, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.summary import Summary
    from orchestrator.sweep_directory import SweepDirectory

app = typer.Typer(
    name="attnsweep",
    help="Sweeps of small attention models: fused trainings, stuck rates with honest intervals, a Parquet ledger.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_FAULT, EXIT_MISTAKE, EXIT_SOME_FAILED, EXIT_CHANGED, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
_TYPED_CHARACTERS = 400
"""Of what Typer says of a mistake, which repeats what was typed."""


class Format(StrEnum):
    """How `query` prints its result."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


SweepDir = Annotated[str, typer.Argument(metavar="DIR", help="A sweep directory, or s3://BUCKET/PREFIX.")]
Address = Annotated[str | None, typer.Option(help="A running Ray cluster: auto, HOST:PORT or ray://HOST:PORT.")]
Local = Annotated[bool, typer.Option("--local", help="Train in this process, without Ray.")]
Trainers = Annotated[int | None, typer.Option(min=1, help="Trainer actors; default one per GPU or CPU core.")]
PackSize = Annotated[int | None, typer.Option(min=1, help="Trainings fused in a pack; default the fastest, measured.")]
MaxFailures = Annotated[int | None, typer.Option(min=0, help="Stop once more trainings have failed in this run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
TrackingUri = Annotated[str | None, typer.Option(help="Default: MLFLOW_TRACKING_URI, or sqlite:///sweeps/mlflow.db.")]


@app.command()
def run(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A shipped sweep, a Python file, or a sweep.json.")],
    directory: Annotated[
        str | None, typer.Option("--dir", help="Or s3://BUCKET/PREFIX; default: ./sweeps/<name>-<time>.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Configurations to train.")] = None,
    replicates: Annotated[int | None, typer.Option(help="Seeded trainings of each configuration.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampler and trainings.")] = None,
    fixed: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Fix a parameter.")] = None,
    address: Address = None,
    local: Local = False,
    trainers: Trainers = None,
    pack_size: PackSize = None,
    max_failures: MaxFailures = None,
    as_json: AsJson = False,
) -> None:
    """Run a sweep."""
    from search_spaces.loading import load_sweep

    sweep = load_sweep(spec).fix(dict(_assignment(text) for text in fixed or []))
    budget = {"trials": trials, "replicates": replicates, "seed": seed}
    sweep = sweep.but(**{name: value for name, value in budget.items() if value is not None})
    path = _new_directory(sweep.name) if directory is None else locate(directory, "--dir")

    from orchestrator.resources import Resources
    from orchestrator.session import run_sweep

    resources = Resources(
        address=address, local=local, n_trainers=trainers, pack_size=pack_size, max_failures=max_failures
    )
    _conclude(run_sweep(sweep, path, resources, _stderr()), as_json=as_json)


@app.command()
def resume(
    directory: SweepDir,
    address: Address = None,
    local: Local = False,
    trainers: Trainers = None,
    pack_size: PackSize = None,
    max_failures: MaxFailures = None,
    accept_drift: Annotated[
        bool, typer.Option("--accept-drift", help="Go on with other versions or code than trained so far.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with an interrupted sweep."""
    from orchestrator.resources import Resources
    from orchestrator.session import resume_sweep

    resources = Resources(
        address=address, local=local, n_trainers=trainers, pack_size=pack_size, max_failures=max_failures
    )
    summary = resume_sweep(locate(directory), resources, _stderr(), accept_drift=accept_drift)
    _conclude(summary, as_json=as_json)


@app.command()
def status(directory: SweepDir) -> None:
    """Show how far a sweep is, from its ledger."""
    from orchestrator.status import print_status

    print_status(locate(directory))


@app.command()
def replay(
    directory: SweepDir,
    training_id: Annotated[
        str, typer.Argument(metavar="TRAINING_ID", help="Its beginning will do, or TRIAL/REPLICATE, such as 12/3.")
    ],
    trace: Annotated[
        bool, typer.Option("--trace", help="Also measure at every step, into ./trace-TRAINING_ID/curves.parquet.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train one training again, alone, and compare it with the ledger; exit code 1 if it does not agree."""
    from orchestrator.replay import replay as replay_training
    from orchestrator.sweep_directory import SweepDirectory

    folder = Path(f"trace-{training_id.replace('/', '-')}") if trace else None
    found = replay_training(SweepDirectory.open(locate(directory)), training_id, folder)
    found.print(_console(stderr=as_json))
    if folder is not None:
        typer.echo(f"trace in {folder}", err=True)
    if as_json:
        typer.echo(found.to_json())
    if not found.deviation.agrees:
        raise typer.Exit(EXIT_FAULT)


@app.command()
def audit(directory: SweepDir, tracking_uri: TrackingUri = None, as_json: AsJson = False) -> None:
    """Check that asked = trained = told = logged, and every file; exit code 1 with a list where not."""
    from orchestrator.audit import audit as audit_sweep

    found = audit_sweep(locate(directory), tracking_uri)
    found.print(_console(stderr=as_json))
    if as_json:
        typer.echo(found.to_json())
    if found.problems:
        raise typer.Exit(EXIT_FAULT)


@app.command()
def query(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep or several, united.")],
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Views: trainings, curves, heads, trials.")],
    format_: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write to a file instead of stdout.")] = None,
) -> None:
    """Ask the ledger of a sweep, or of several at once, in SQL (DuckDB)."""
    from orchestrator.ledger.reader import Ledger
    from orchestrator.output_file import check_output
    from orchestrator.query import query_all, render

    if out is not None:
        check_output(out)
    render(query_all([Ledger(locate(each)) for each in directories], sql), format_.value, out)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A sweep directory, or s3://BUCKET/PREFIX.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another, of the same workload.")],
    by: Annotated[str | None, typer.Option(metavar="PARAM", help="Also in each bin of this parameter.")] = None,
    at_most: Annotated[
        float | None, typer.Option(min=0, max=1, help="Exit with 4 if the stuck rate is shown to change by more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the stuck rates of two sweeps: is B's different from A's?"""
    from orchestrator.compare import compare_directories, to_json

    comparison = compare_directories(a, b, by, _stderr())
    if as_json:
        typer.echo(to_json(comparison))
    if at_most is not None and comparison.stuck.exceeds(at_most):
        raise typer.Exit(EXIT_CHANGED)


@app.command()
def compact(directory: SweepDir) -> None:
    """Merge a ledger's fragments into one file per table."""
    from orchestrator.ledger.compaction import compact as compact_ledger

    compact_ledger(locate(directory))


@app.command()
def report(
    directories: Annotated[list[str], typer.Argument(metavar="DIR...", help="One sweep or several.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file; default DIR/report/report.html.")] = None,
) -> None:
    """Write a sweep's findings as one HTML file with figures; prints where it is."""
    from orchestrator.report.page import write_report

    typer.echo(write_report([locate(each) for each in directories], out))


@app.command(name="mlflow-sync")
def mlflow_sync(directory: SweepDir, tracking_uri: TrackingUri = None) -> None:
    """Log to MLflow what is in the ledger and not there yet."""
    from orchestrator import tracking
    from orchestrator.progress import logging_progress
    from orchestrator.sweep_directory import SweepDirectory

    sweep = SweepDirectory.open(locate(directory))
    done = tracking.sync(sweep, tracking_uri, logging_progress(_stderr()))
    typer.echo(f"{done.n_logged} trials logged, {done.n_present} were there", err=True)
    _add_report(sweep, tracking_uri)


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Reproduce this one; without a name, list what there is.")] = None,
    directory: Annotated[str | None, typer.Option("--dir", help="Default: ./sweeps/<name>-<time>.")] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce a figure or table of the literature: ours beside the published values."""
    from orchestrator.reproduction.catalog import REPRODUCTIONS, find_reproduction

    if name is None:
        for each in REPRODUCTIONS:
            typer.echo(f"{each.name:14} {each.cost:>7}  {each.title} ({each.source})")
        return
    reproduction = find_reproduction(name)
    path = _new_directory(reproduction.name) if directory is None else local_path(directory, "--dir")

    from orchestrator.reproduction.comparison import write_comparison

    comparison = reproduction.load()(path, _stderr())
    write_comparison(comparison, path, reproduction.name)
    comparison.print(_stderr())
    if as_json:
        typer.echo(comparison.to_json())


@app.command(name="score-heads")
def score_heads(
    file: Annotated[Path, typer.Argument(metavar="FILE.npy", help="Attention matrices, (n_heads, n, n).")],
    window: Annotated[int | None, typer.Option(help="Rows of a block; default the best.")] = None,
    num_pos: Annotated[int | None, typer.Option(help="Number of blocks; default the best.")] = None,
    as_json: AsJson = False,
) -> None:
    """Score attention matrices: roles that need no tokens, exact distances to structures."""
    from orchestrator import head_scores
    from workloads.diagnostics.matrices import score_matrices

    matrices = head_scores.load_matrices(file)
    found = score_matrices(matrices, window=window, num_pos=num_pos, subject="FILE.npy")
    if as_json:
        typer.echo(head_scores.as_json(found, file))
    else:
        head_scores.print_table(found)


@app.command(name="prepare-corpus")
def prepare_corpus(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Parallel sentences: TSV, TSV.gz or Parquet.")],
    out: Annotated[Path, typer.Option(metavar="CORPUS.parquet", help="The corpus to write.")],
    source: Annotated[str | None, typer.Option(metavar="COLUMN", help="Default: the first column of text.")] = None,
    target: Annotated[str | None, typer.Option(metavar="COLUMN", help="Default: the second column of text.")] = None,
    min_frequency: Annotated[int, typer.Option(min=1, help="Rarer words of the training part are unknown.")] = 2,
    longest: Annotated[int, typer.Option(min=1, help="Words of the longest sentence that is kept.")] = 24,
    held_out: Annotated[float, typer.Option(help="Share held out, half for validation, half for test.")] = 0.1,
    lowercase: Annotated[bool, typer.Option("--lowercase/--no-lowercase", help="Lower capitals.")] = True,
    seed: Annotated[int, typer.Option(help="Of the choice of what is held out.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a corpus for the workload translation from real parallel text."""
    from orchestrator.corpora.command import prepare_file
    from orchestrator.corpora.preparation import PreparationSettings

    settings = PreparationSettings(
        min_frequency=min_frequency, longest=longest, held_out=held_out, lowercase=lowercase, seed=seed
    )
    preparation = prepare_file(file, out, source, target, settings)
    preparation.print(_stderr())
    if as_json:
        typer.echo(preparation.to_json())


@app.command()
def specs(name: Annotated[str | None, typer.Argument(help="Show this one.")] = None) -> None:
    """List the shipped sweeps, or show one."""
    from search_spaces.loading import load_sweep, shipped_names

    if name is not None:
        typer.echo(load_sweep(name).to_json())
        return
    for each in shipped_names():
        typer.echo(f"{each:16} {load_sweep(each).description}")


@app.command()
def workloads() -> None:
    """List the workloads that are installed."""
    from workloads.registry import load_workload, registered_names

    for name in registered_names():
        typer.echo(f"{name:16} {load_workload(name).summary}")


def main() -> None:
    """The console script: commands, with a user's mistakes as one line and exit code 2."""
    try:
        with sigterm_as_ctrl_c():
            _check_texts(sys.argv[1:])
            sys.exit(app(standalone_mode=False))
    except UserError as mistake:
        _complain(str(mistake))
        sys.exit(EXIT_MISTAKE)
    except SweepError as fault:
        _complain(f"{fault}\nonce mended, go on with: attnsweep resume {as_argument(fault.path)}")
        sys.exit(EXIT_FAULT)
    except PoolError as fault:
        _complain(str(fault))
        sys.exit(EXIT_FAULT)
    except TyperException as mistake:
        # Without arguments there is only the help, printed already.
        if message := mistake.format_message().rstrip("."):
            _complain(f"{message[:_TYPED_CHARACTERS]}; see attnsweep --help")
        sys.exit(EXIT_MISTAKE)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)


def _check_texts(arguments: Sequence[str]) -> None:
    """Refuses what no file, record or query can hold."""
    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and any("\ud800" <= sign <= "\udfff" for sign in argument)):
            raise UserError(
                "argument", given=argument, expected="UTF-8 text without NUL", mend="correct it, or rename the file"
            )


def _complain(text: str) -> None:
    """One message, whose parts may be anyone's, on stderr."""
    from orchestrator.terminal import plain

    typer.echo(f"attnsweep: {plain(without_credentials(text))}", err=True)


def _conclude(summary: "Summary", *, as_json: bool) -> None:
    summary.print(_stderr())
    if as_json:
        typer.echo(summary.to_json())
    if not summary.finished:
        raise typer.Exit(EXIT_INTERRUPTED)
    if summary.in_mlflow:
        _add_report(summary.directory)
    if summary.n_failed or summary.refused:
        raise typer.Exit(EXIT_SOME_FAILED)


def _add_report(directory: "SweepDirectory", tracking_uri: str | None = None) -> None:
    """The last thing, since it takes seconds. Who has seen enough may leave it out with Ctrl-C."""
    from orchestrator import tracking

    with suppress(KeyboardInterrupt), _stderr().status("drawing the report for MLflow; Ctrl-C leaves it out"):
        tracking.add_report(directory, tracking_uri)


def _assignment(text: str) -> tuple[str, Any]:
    """`name=value`, the value as JSON where it is, else as a bare word."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError("--set", given=text, expected="NAME=VALUE", mend="for example --set init_sigma=0.1")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
    except RecursionError as error:
        raise SpecError(
            name, given=value, expected="a number, a text, true, false or null", mend="write one"
        ) from error


def _new_directory(name: str) -> Path:
    return Path("sweeps") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _stderr() -> "Console":
    return _console(stderr=True)


def _console(*, stderr: bool) -> "Console":
    from orchestrator.terminal import PlainConsole

    return PlainConsole(stderr=stderr)
