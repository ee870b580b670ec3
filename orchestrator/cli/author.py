"""Commands for authors of workloads. Fast to import: every command loads its libraries when it runs."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from attnsweep.orchestrator.cli.answers import EXIT_FAULT, answer, say
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.orchestrator.cli.resource_options import Engine
from attnsweep.workloads.errors import UserError

_LONGEST = 24
"""The default for the longest sentence of a pair, in words."""
Unit: TypeAlias = Literal["characters", "words"]
"""The kind of token into which a text is split."""


def workload_names() -> list[str]:
    """Lists the installed workloads, for shell completion."""
    from attnsweep.workloads.registry import registered_names

    return registered_names()


def new_workload(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Its name, such as copy_task: lower case and underscores.")
    ],
) -> None:
    """Write NAME.py, a small example workload with attention and a sweep of it, and print what to do next."""
    from attnsweep.orchestrator.tools.new_workload import next_commands, write_workload

    typer.echo(f"{write_workload(name, Path())}: a workload and its sweep, which run as they are. Change them; next:")
    commands = next_commands(name)
    width = max(len(command) for command, _ in commands)
    for command, purpose in commands:
        typer.echo(f"  {command:{width}}  {purpose}")


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
    from attnsweep.search_spaces.loading import assignments

    if name is None:
        print_workloads()
    else:
        print_workload(name, assignments(fixed))


def check_gradients(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload's name, or FILE.py:CLASS.")],
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="Set a parameter of the workload; may be repeated."),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="With blocks, check the compiled blocks too: up to a minute to compile.")
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Check a workload's gradients in float64, and print one row per check; exit code 1 if a check fails."""
    from attnsweep.orchestrator.inspection.gradients import check_workload
    from attnsweep.orchestrator.inspection.kept_weights import find_base
    from attnsweep.search_spaces.loading import assignments
    from attnsweep.workloads.registry import load_workload

    loaded = load_workload(workload)
    values = assignments(fixed)
    if (base := find_base(loaded, values)) is not None:
        values[loaded.parameters.base_field] = base.name
    report = check_workload(loaded, values, say, compiles=engine == "blocks")
    answer(report.print, report.to_json, as_json=as_json)
    if report.failed:
        raise typer.Exit(EXIT_FAULT)


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
    """Make a corpus: for `translation` from parallel text; with --unit, for `gpt` from one column of text."""
    from attnsweep.orchestrator.tools.prepare_corpus.pairs import prepare_pairs
    from attnsweep.orchestrator.tools.prepare_corpus.rows import PreparationSettings
    from attnsweep.orchestrator.tools.prepare_corpus.text import prepare_text

    _refuse_misplaced({"--column": column} if unit is None else {"--source": source, "--target": target}, unit)
    settings = PreparationSettings(
        unit=unit or "words",
        min_frequency=min_frequency,
        longest=_LONGEST if longest is None and unit is None else longest,
        held_out=held_out,
        lowercase=lowercase,
        seed=seed,
    )
    if unit is None:
        prepared = prepare_pairs(file, out, source, target, settings)
    else:
        prepared = prepare_text(file, out, column, settings)
    answer(prepared.print, prepared.to_json, as_json=as_json, on_stderr=True)


def _refuse_misplaced(options: dict[str, str | None], unit: Unit | None) -> None:
    for flag, value in options.items():
        if value is not None:
            mode = "with --unit" if unit is not None else "without --unit"
            fix = "give --column instead" if unit is not None else "give --source and --target, or add --unit"
            raise UserError(flag, given=value, expected=f"no option {flag} {mode}", fix=fix)
