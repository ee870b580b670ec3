"""Commands that compare with the literature. Fast to import: every command loads its libraries when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from attnsweep.orchestrator.cli.answers import answer, console, say
from attnsweep.orchestrator.cli.arguments import AsJson
from attnsweep.orchestrator.cli.reproductions import find_reproduction, load_reproductions, with_options
from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.place_names import new_directory


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
    from attnsweep.orchestrator.storage.place_names import local_path

    reproductions, errors = load_reproductions()
    for error in errors:
        say(f"attnsweep: {without_credentials(str(error))}")
    if name is None:
        width = max(map(len, reproductions), default=0)
        for listed in reproductions.values():
            typer.echo(f"{listed.name:{width}}  {listed.cost:>6}  {listed.title} ({listed.source})")
        return
    reproduction = with_options(find_reproduction(name, reproductions), full=full, corpus=corpus)
    path = local_path(new_directory(reproduction.name, directory), "--dir")
    result = reproduction.run(path, console(stderr=True))
    answer(result.print, result.to_json, as_json=as_json, on_stderr=True)


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
    """Score attention matrices from a file: the roles that need no tokens, and the distance to each attention
    structure."""
    from attnsweep.orchestrator.cli.screen.head_scores import print_scores
    from attnsweep.orchestrator.tools.score_heads import load_matrices, to_json
    from attnsweep.workloads.diagnostics.matrices import score_matrices

    matrices = load_matrices(file)
    scores = score_matrices(
        matrices,
        window=window,
        num_pos=num_pos,
        free_entries=free_entries,
        any_row_sum=any_row_sum,
        subject="FILE.npy",
    )
    if as_json:
        typer.echo(to_json(scores, file))
    else:
        print_scores(scores)
