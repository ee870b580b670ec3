"""Study of docs/interventions.md: how much faster or slower trainings reach a goal with an intervention than without
one.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from attnsweep.orchestrator.analysis.interventions import InterventionRatio
from attnsweep.orchestrator.analysis.opened_sweep import SweepData
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.rows import estimate_row, value_row

INDUCTION = ("previous_token, layer 0", "induction, layer 1", "solved")
TRANSLATION = (
    "loss below bigram",
    "loss below language_model",
    "syntactic, encoder self",
    "syntactic, decoder self",
    "solved",
)
MARKOV = ("unigram", "bigram", "previous_token, layer 0", "induction, layer 1", "solved")


def compare(title: str, shown: Sequence[str], sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reports hazard ratios: for each intervention, how much faster trainings of a finished sweep reach goals, such as
    `solved`, than without it.

    Args:
        title: The subject, the title of the table.
        shown: The goals that the table shows, by their names in `InterventionRatio.what`.
        sweep: The finished sweep.
        directory: Not written to: there is no figure.
    """
    del directory
    ratios = [each for each in SweepData.open(sweep.place).interventions().ratios if each.what in shown]
    return Comparison(
        title=title,
        source="attnsweep, docs/interventions.md",
        rows=list(_rows(ratios)),
        tables=[
            (
                "With each intervention: trainings that reach it, at their median step, and hazard ratio",
                _table(ratios, shown),
            )
        ],
        notes=[
            "The hazard ratio is relative to the same seed without the intervention: pairs in which the training with "
            "it came sooner over pairs in which it came later, with an exact 95% interval. Above: no pair came later."
        ],
    )


compare_induction = partial(compare, "induction-needs: what induction heads need", INDUCTION)
compare_translation = partial(compare, "translation-needs: what translators and their heads need", TRANSLATION)
compare_markov = partial(compare, "markov-needs: what statistical induction heads need", MARKOV)


def _rows(ratios: Sequence[InterventionRatio]) -> Iterator[ComparedValue]:
    for each in ratios:
        name = f"{each.intervention}: {each.what}"
        if each.ratio is not None and each.low is not None and each.high is not None:
            yield estimate_row(name, each.ratio, each.low, each.high)
        elif each.low is not None:
            yield value_row(name, f"above {each.low:.2g}")


def _table(ratios: Sequence[InterventionRatio], shown: Sequence[str]) -> list[list[str]]:
    cells = {(each.intervention, each.what): each for each in ratios}
    interventions = list(dict.fromkeys(each.intervention for each in ratios))
    table = [["intervention", *shown]]
    for text in interventions:
        of_text = [cells.get((text, what)) for what in shown]
        if len(table) == 1:
            reached = [(each.n_without, each.median_without, each.n_pairs) if each else None for each in of_text]
            table.append(["none", *(_reached(*each) if each else "-" for each in reached)])
        table.append(
            [
                text,
                *(
                    f"{_reached(each.n_with, each.median_with, each.n_pairs)}: {each.label}" if each else "-"
                    for each in of_text
                ),
            ]
        )
    return table


def _reached(n: int, median: int | None, n_pairs: int) -> str:
    return f"{n} of {n_pairs}" + (f", at {median}" if median is not None else "")
