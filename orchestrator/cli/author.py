"""Commands that need no sweep. Light to import: each loads its libraries when it runs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from attnsweep.workloads.errors import UserError

_LONGEST = 24
"""Words of a sentence of a pair."""


class Unit(StrEnum):
    """The tokens of a text."""

    characters = "characters"
    words = "words"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def sweep_names() -> list[str]:
    """The shipped sweeps, for a shell's completion."""
    from attnsweep.search_spaces.loading import shipped_names

    return shipped_names()


def workload_names() -> list[str]:
    """The installed workloads, for a shell's completion."""
    from attnsweep.workloads.registry import registered_names

    return registered_names()


def score_heads(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.npy", help="Attention matrices, an array of shape (n_heads, n, n).")
    ],
    window: Annotated[int | None, typer.Option(help="Rows of a block; default: the value that fits best.")] = None,
    num_pos: Annotated[int | None, typer.Option(help="Number of blocks; default: the value that fits best.")] = None,
    free_entries: Annotated[
        int | None,
        typer.Option(metavar="M", help="Also measure distances to each family plus at most M entries anywhere."),
    ] = None,
    any_row_sum: Annotated[
        bool,
        typer.Option("--any-row-sum", help="Accept rows that do not sum to 1: matrices captured with dropout on."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score attention matrices: the roles that need no tokens, and the exact distance to each structure."""
    from attnsweep.orchestrator.tools import score_heads as head_scores
    from attnsweep.workloads.diagnostics.matrices import score_matrices

    matrices = head_scores.load_matrices(file)
    found = score_matrices(
        matrices,
        window=window,
        num_pos=num_pos,
        free_entries=free_entries,
        any_row_sum=any_row_sum,
        subject="FILE.npy",
    )
    if as_json:
        typer.echo(head_scores.as_json(found, file))
    else:
        head_scores.print_table(found)


def prepare_corpus(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Parallel sentences, as TSV, TSV.gz or Parquet; with --unit also a plain text."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CORPUS.parquet", help="The file to write.")],
    unit: Annotated[
        Unit | None,
        typer.Option(help="Make a text of one column for the workload `gpt`, whose tokens are these."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="With --unit: the column; default: the first, or the lines of a plain text."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of source sentences; default: the first column of text."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of target sentences; default: the second column of text."),
    ] = None,
    min_frequency: Annotated[
        int, typer.Option(min=1, help="Words that are rarer than this in the training part become unknown words.")
    ] = 2,
    longest: Annotated[
        int | None,
        typer.Option(min=1, help="Drop rows with more words or characters than this; default: 24 words for pairs."),
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the rows held out; of pairs half for validation, half for test.")
    ] = 0.1,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--no-lowercase", help="Whether to lowercase all text.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the choice of held-out rows.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a corpus: for `translation` from parallel text, or with --unit for `gpt` from one column of text."""
    from attnsweep.orchestrator.terminal import PlainConsole
    from attnsweep.orchestrator.tools.prepare_corpus.command import Preparation, prepare_file
    from attnsweep.orchestrator.tools.prepare_corpus.preparation import PreparationSettings
    from attnsweep.orchestrator.tools.prepare_corpus.text import PreparedText, TextSettings, prepare_text

    _refuse_misplaced({"--column": column} if unit is None else {"--source": source, "--target": target}, unit)
    preparation: Preparation | PreparedText
    if unit is not None:
        of_text = TextSettings(
            unit=unit.value,
            min_frequency=min_frequency,
            longest=longest,
            held_out=held_out,
            lowercase=lowercase,
            seed=seed,
        )
        preparation = prepare_text(file, out, column, of_text)
    else:
        settings = PreparationSettings(
            min_frequency=min_frequency,
            longest=_LONGEST if longest is None else longest,
            held_out=held_out,
            lowercase=lowercase,
            seed=seed,
        )
        preparation = prepare_file(file, out, source, target, settings)
    preparation.print(PlainConsole(stderr=True))
    if as_json:
        typer.echo(preparation.to_json())


def _refuse_misplaced(options: dict[str, str | None], unit: Unit | None) -> None:
    for flag, value in options.items():
        if value is not None:
            given = "with --unit" if unit is not None else "without --unit"
            fix = "give --column in its place" if unit is not None else "give --source and --target, or add --unit"
            raise UserError(flag, given=value, expected=f"nothing {given}", fix=fix)


def specs(
    name: Annotated[str | None, typer.Argument(help="The sweep to show.", autocompletion=sweep_names)] = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Show it as YAML, without what has its default.")] = False,
) -> None:
    """List the shipped sweeps, or show one as JSON or YAML."""
    from attnsweep.orchestrator.cli.screen.sweeps import print_sweeps
    from attnsweep.search_spaces.loading import load_sweep

    if name is None:
        print_sweeps()
    else:
        sweep = load_sweep(name)
        typer.echo(sweep.to_yaml().rstrip() if as_yaml else sweep.to_json())


def workloads(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A workload's name, or FILE.py:CLASS: show its parameters, and which engine trains it.",
            autocompletion=workload_names,
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="Set a parameter of that workload; may be repeated."),
    ] = None,
) -> None:
    """List the installed workloads, or show one: its parameters, and the engine that trains it."""
    from attnsweep.orchestrator.cli.screen.workloads import print_workload, print_workloads
    from attnsweep.search_spaces.loading import assignment

    if name is None:
        print_workloads()
    else:
        print_workload(name, dict(assignment(text) for text in fixed or []))


def new_workload(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name, such as copy_task: lower case and underscores.")
    ],
) -> None:
    """Write NAME.py, a small workload with attention and its sweep, to be changed; print what to do next."""
    from attnsweep.orchestrator.tools.new_workload.writing import next_commands, write_workload

    typer.echo(f"{write_workload(name, Path())}: a workload and its sweep, which run as they are. Change them; next:")
    commands = next_commands(name)
    width = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        typer.echo(f"  {command:{width}}  {purpose}")


def doctor(
    address: Annotated[
        str | None, typer.Option(help="Check every node of this Ray cluster; default: only this machine, without Ray.")
    ] = None,
    directory: Annotated[
        str | None, typer.Option("--dir", help="Also check that this directory, or s3://BUCKET/PREFIX, can be written.")
    ] = None,
) -> None:
    """Check what sweeps need: versions, token, GPUs, clocks, MLflow, storage; exit code 1 if something fails."""
    from attnsweep.orchestrator.storage.location import locate
    from attnsweep.orchestrator.terminal import PlainConsole
    from attnsweep.orchestrator.tools.doctor.command import examine

    place = None if directory is None else locate(directory, "--dir")
    console, n_failed = PlainConsole(soft_wrap=True), 0
    for finding in examine(address, place):
        console.print(str(finding))
        n_failed += bool(finding.fix)
    if n_failed:
        raise typer.Exit(1)
