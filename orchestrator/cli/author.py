"""Commands for authors of workloads. Fast to import: every command loads its libraries when it runs."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer
from typer import Argument, Option

from attnsweep.orchestrator.cli.answers import answer, console, listing
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from attnsweep.workloads.parameters import Parameter, Value

_MAX_INT32 = 2**31 - 1
_LONGEST = 24
"""The default limit on the length of a pair's sentences, in words."""
Unit: TypeAlias = Literal["characters", "words"]


def workload_names() -> list[str]:
    from attnsweep.workloads.registry import registered_names

    return registered_names()


def new_workload(
    name: Annotated[str, Argument(metavar="NAME", help="Its name, such as copy_task: lower case and underscores.")],
) -> None:
    """Write NAME.py, a small example workload with attention and a sweep of it, and print what to do next."""
    from attnsweep.orchestrator.tools.new_workload import write_workload

    file = write_workload(name, Path())
    typer.echo(f"{file}: a workload and its sweep, which run as they are. Change them; next:")
    typer.echo(f"  attnsweep run {file} --local  run its sweep in this process; without --local, on all cores")
    typer.echo(f"  python {file}  check what the engine relies on, in about a minute at most")


def workloads(
    name: Annotated[
        str | None,
        Argument(
            metavar="NAME",
            help="A workload's name, or FILE.py:CLASS: show its parameters, and which engine trains it.",
            autocompletion=workload_names,
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        Option("--set", metavar="PARAMETER=VALUE", help="Set a parameter of that workload; may be repeated."),
    ] = None,
) -> None:
    """List the installed workloads, or show one: its parameters, and the engine that trains it."""
    from attnsweep.search_spaces.loading import assignments
    from attnsweep.workloads.registry import load_workload, registered_names

    if name is not None:
        _print_workload(name, assignments(fixed))
        return
    table = listing("workload", "what it trains")
    for installed in registered_names():
        table.add_row(installed, load_workload(installed).summary)
    console(stderr=False).print(table)


def prepare_corpus(
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="Parallel sentences, as TSV, TSV.gz or Parquet; with --unit also a plain text."),
    ],
    out: Annotated[Path, Option(metavar="CORPUS.parquet", help="The file to write.")],
    unit: Annotated[
        Unit | None, Option(help="Make a text of one column for the workload `gpt`, whose tokens are these.")
    ] = None,
    column: Annotated[
        str | None,
        Option(
            metavar="COLUMN", help="With --unit: the column; default: the first of a Parquet file, else whole lines."
        ),
    ] = None,
    source: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of source sentences; default: the first column of text.")
    ] = None,
    target: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of target sentences; default: the second column of text.")
    ] = None,
    min_frequency: Annotated[
        int,
        Option(min=1, max=_MAX_INT32, help="Words that are rarer than this in the training part become unknown words."),
    ] = 2,
    longest: Annotated[
        int | None,
        Option(
            min=1,
            max=_MAX_INT32,
            help="Drop rows with more words or characters than this; default: 24 words for pairs.",
        ),
    ] = None,
    held_out: Annotated[
        float, Option(help="Share of the rows held out; of pairs half for validation, half for test.")
    ] = 0.1,
    lowercase: Annotated[bool, Option("--lowercase/--no-lowercase", help="Whether to lowercase all text.")] = True,
    seed: Annotated[int, Option(help="Seed of the choice of held-out rows.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a corpus for `translation` from parallel text, or with --unit a corpus for `gpt` from one column of text."""
    if importlib.util.find_spec("tokenizers") is None:
        fix = "install it with: pip install 'attnsweep[corpora]'"
        raise UserError("prepare-corpus", given="no library tokenizers", expected="an installed one", fix=fix)
    from attnsweep.orchestrator.tools.prepare_corpus.preparing import prepare_pairs, prepare_text
    from attnsweep.orchestrator.tools.prepare_corpus.rows import PreparationSettings

    misplaced = {"--column": column} if unit is None else {"--source": source, "--target": target}
    for flag, value in misplaced.items():
        if value is not None:
            expected = "two columns, --source and --target" if unit is None else "one column, --column"
            raise UserError(flag, given=value, expected=expected, fix="--unit decides which is made")
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


def _print_workload(name: str, values: "Mapping[str, Value]") -> None:
    """With the engine that would train these values."""
    from attnsweep.orchestrator.analysis.labels import value_label
    from attnsweep.orchestrator.running.engine_choice import engine_of_shape
    from attnsweep.workloads.registry import load_workload

    workload, screen = load_workload(name), console(stderr=False)
    screen.print(f"{name}: {workload.summary}")
    screen.print(f"engine: {engine_of_shape(workload, values)}\n")
    for each in workload.parameters.declared().values():
        value, is_static = value_label(values.get(each.name, each.default)), ", static" if each.static else ""
        screen.print(f"{each.name} = {value}   ({_range(each)}{is_static})", highlight=False)
        screen.print(f"    {each.doc}", highlight=False)
    screen.print("\nTrainings that differ in a static parameter are in different packs.")


def _range(parameter: "Parameter") -> str:
    bounds = {">": parameter.above, ">=": parameter.low, "<=": parameter.high}
    within = " and ".join(f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None)
    words = within if parameter.choices is None else ", ".join(parameter.choices)
    return f"{parameter.kind.__name__} {words}".strip() + (", or null" if parameter.optional else "")
