"""PARITY with the set-up of Chiang & Cholak 2022, who report that it is never learned."""

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.bounded import bounded_mean_row
from attnsweep.reproduction.chiang.curves import (
    Cell,
    Curves,
    Panel,
    cells_of,
    draw_curves,
    longest_test_length,
    read_curves,
)
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import share_row
from attnsweep.reproduction.swept import swept

CHANCE = (0.4, 0.6)
"""Mean accuracies that count as chance."""
ACCURACIES = (0.0, 1.0)


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 4 lengths x 2 scales x 20 seeds for 100 epochs."""
    return compare(swept("chiang_parity", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws its curves."""
    length = longest_test_length(sweep)
    test_accuracy = f"accuracy_{length}"
    curves = read_curves(sweep, ("eval_loss", "accuracy", test_accuracy))
    figure = draw_curves(
        curves,
        (
            Panel(metric="eval_loss", label="cross-entropy at the\ntraining length (bits)", chance=1.0),
            Panel(
                metric="accuracy",
                label="accuracy at the\ntraining length",
                chance=0.5,
                limits=(0.35, 1.02),
                ends=ACCURACIES,
            ),
            Panel(
                metric=test_accuracy, label=f"accuracy at {length}", chance=0.5, limits=(0.35, 1.02), ends=ACCURACIES
            ),
        ),
    )
    return Comparison(
        title="chiang-parity: PARITY with the set-up of Figure 4",
        source="Chiang & Cholak 2022, section 3.1",
        rows=[row for cell in cells_of(curves) for row in _rows(cell, curves, test_accuracy, length)],
        figures=save_figure(figure, directory, "chiang-parity"),
        notes=[
            "Positions are encoded as i/n and cos(i pi). Width, learning rate, initialization, strings and epochs are "
            "those of Figure 4.",
            f"'Chance' is read as a mean accuracy within {CHANCE[0]:g}..{CHANCE[1]:g}; the paper gives no numbers.",
            "Half of all strings have odd parity, so an encoder that knows only its own strings guesses at others.",
        ],
    )


def _undecided(row: ComparedValue) -> ComparedValue:
    """A mean near chance whose interval reaches beyond what counts as chance decides nothing."""
    return replace(row, agrees=None) if not row.agrees and CHANCE[0] <= float(row.ours) <= CHANCE[1] else row


def _rows(cell: Cell, curves: Curves, test_accuracy: str, length: int) -> list[ComparedValue]:
    scale = "scaled" if cell.is_scaled else "unscaled"
    own, test = curves[cell, "accuracy"].final, curves[cell, test_accuracy].final
    name = f"{scale}, n = {cell.train_length}"
    return [
        *(
            _undecided(bounded_mean_row(f"{name}: {at}", values, ACCURACIES, published="chance", agrees_within=CHANCE))
            for at, values in (("accuracy at that length", own), (f"accuracy at {length}", test))
        ),
        share_row(
            f"{name}: seeds that learn it",
            sum(value == 1.0 for value in own),
            len(own),
            published="none",
            agrees_within=(0.0, 0.2),
        ),
    ]
