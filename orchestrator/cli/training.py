"""Commands that examine one training. Fast to import: every command loads its libraries when it runs."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from typer import Option

from attnsweep.orchestrator.cli.answers import EXIT_FAULT, answer, say, tell
from attnsweep.orchestrator.cli.arguments import AsJson, SweepDir, TrainingId, opened

Target: TypeAlias = Literal["pt", "safetensors", "hf"]
Redraw: TypeAlias = Literal["data", "noise", "kick"]


def replay(directory: SweepDir, training_id: TrainingId, as_json: AsJson = False) -> None:
    """Train one training again, alone, and compare the result with its rows in the ledger; exit code 1 unless
    they agree."""
    from attnsweep.orchestrator.inspection.replay import print_replay, replay_json
    from attnsweep.orchestrator.inspection.replay import replay as replay_training

    again = replay_training(opened(directory), training_id)
    answer(partial(print_replay, again), partial(replay_json, again), as_json=as_json)
    if not again.deviation.agrees:
        raise typer.Exit(EXIT_FAULT)


def fork(
    directory: SweepDir,
    training_id: TrainingId,
    at: Annotated[int, Option(min=0, metavar="STEP", help="The step to continue from.")],
    redraw: Annotated[
        Redraw, Option(help="What differs: later data, later dropout masks, or noise added to the parameters.")
    ] = "data",
    n: Annotated[int, Option(help="Continuations.")] = 256,
    size: Annotated[
        float, Option(help="Size of a kick, relative to the root mean square of each parameter tensor.")
    ] = 0.01,
    as_json: AsJson = False,
) -> None:
    """Continue a training many times from one step, with new random draws or a kick, and count how it ends."""
    from attnsweep.orchestrator.inspection.fork import fork as fork_training

    result = fork_training(opened(directory), training_id, step=at, redraw=redraw, n=n, size=size, say=say)
    answer(result.print, result.to_json, as_json=as_json)
    if result.difference:
        raise typer.Exit(EXIT_FAULT)


def why(directory: SweepDir, training_id: TrainingId, as_json: AsJson = False) -> None:
    """Explain why a training is stuck where it ended: its gradient, the curvature of its loss, kicks, and its
    certificate."""
    from attnsweep.orchestrator.inspection.why import why as why_training

    explanation = why_training(opened(directory), training_id, str(directory))
    answer(explanation.print, explanation.to_json, as_json=as_json)


def heads(
    directory: SweepDir,
    training_id: TrainingId,
    sentence: Annotated[
        int | None,
        Option(min=0, help="Number of the held-out sentence; default: 0, for translators one of median length."),
    ] = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="PNG or SVG to write; default: ./heads-TRAINING_ID.png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw what each attention head of a training attends to at its end, and print each head's role and scores."""
    from attnsweep.orchestrator.inspection.heads import heads_of
    from attnsweep.orchestrator.inspection.heads_figure import check_format, heads_figure, save_figure
    from attnsweep.orchestrator.storage.output_file import check_output, writing_file

    file = out or Path(f"heads-{training_id.replace('/', '-')}.png")
    check_format(file)
    check_output(file)
    result = heads_of(opened(directory), training_id, sentence)
    with writing_file(file) as path:
        save_figure(heads_figure(result), path, file.suffix)
    answer(result.print, result.to_json, as_json=as_json)
    say(f"maps in {file}")


def export(
    directory: SweepDir,
    training_id: TrainingId,
    to: Annotated[Target, Option(help="The library that reads it.")],
    out: Annotated[Path, Option(metavar="FOLDER", help="A new or empty folder to write.")],
    step: Annotated[
        int | None, Option(min=0, help="Take the weights after this many steps; default: the training's end.")
    ] = None,
) -> None:
    """Export the trained module of one training for another library, and print how to load it."""
    from attnsweep.orchestrator.inspection.trained_module import export as export_training

    tell(export_training(opened(directory), training_id, to, out, step))
