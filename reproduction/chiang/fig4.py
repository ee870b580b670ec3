"""Figure 4 of Chiang & Cholak 2022: FIRST learned from strings of one length, tested at length 1,000."""

import itertools
import math
from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.bounded import bounded_difference_row, bounded_mean_row
from attnsweep.reproduction.chiang.curves import (
    STEPS_PER_EPOCH,
    Cell,
    Curves,
    Panel,
    cells_of,
    draw_curves,
    from_zero,
    longest_test_length,
    read_curves,
)
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import ABOVE_ZERO, Bounds, share_row
from attnsweep.reproduction.swept import swept

NEAR_CHANCE = (0.4, 0.6)
"""Mean accuracies that count as hardly better than guessing."""
NEARLY_ALL = 0.95
"""If all of 100 seeds have a property, the share among all seeds is above this (95% interval)."""
NEAR_ZERO_BITS = 0.05
"""Cross-entropies below this count as ~0."""
ACCURACIES = (0.0, 1.0)
_WHAT_IS_SCALED = {
    "log_n_query_inv_sqrt_d": "Scaled: log n multiplies the layer's input before its projection to queries, and so not "
    "the queries' bias, as in the authors' code. With the paper's equation 2: chiang-fig4-logits.",
    "log_n_inv_sqrt_d": "Scaled: log n multiplies the logits, as in the paper's equation 2. The authors' code, and "
    "chiang-fig4, multiply the layer's input before its projection to queries, and so not the queries' bias.",
}


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 4 lengths x 2 scales x 100 seeds for 100 epochs."""
    return compare(swept("chiang_fig4", directory, console, engine="auto"), directory, "chiang-fig4")


def reproduce_long(directory: Path, console: Console) -> Comparison:
    """Trains the same for 1,000 epochs: do the claims hold once all lengths are learned?"""
    return compare(swept("chiang_fig4_long", directory, console, engine="auto"), directory, "chiang-fig4-long")


def reproduce_logits(directory: Path, console: Console) -> Comparison:
    """Trains the scaled half with the scale of equation 2, which the authors' code does not use."""
    return compare(swept("chiang_fig4_logits", directory, console, engine="auto"), directory, "chiang-fig4-logits")


def compare(sweep: SweepDirectory, directory: Path, name: str) -> Comparison:
    """Reads a finished sweep, draws its curves, and compares their ends with the paper's claims."""
    length = longest_test_length(sweep)
    bits, accuracy, attention = f"cross_entropy_{length}", f"accuracy_{length}", f"first_attention_{length}"
    curves = read_curves(sweep, (bits, accuracy, attention, "eval_loss"))
    figure = draw_curves(
        curves,
        (
            Panel(metric=bits, label=f"cross-entropy at {length}\n(bits)", chance=1.0),
            Panel(metric=accuracy, label=f"accuracy at {length}", chance=0.5, limits=(0.35, 1.02), ends=ACCURACIES),
            Panel(metric=attention, label="CLS's attention to\nposition 1, both layers"),
        ),
    )
    n_epochs = max(curve.epochs[-1] for curve in curves.values())
    return Comparison(
        title=f"{name}: FIRST learned for {n_epochs:g} epochs, tested at length {length}",
        source="Chiang & Cholak 2022, section 5.3, Figure 4",
        rows=[
            *itertools.chain.from_iterable(_cell_rows(cell, curves, bits, accuracy) for cell in cells_of(curves)),
            *_claims(curves, bits, accuracy),
        ],
        figures=save_figure(figure, directory, name),
        notes=[
            *(
                words
                for scale, words in _WHAT_IS_SCALED.items()
                if any(c.attention_scale == scale for c in cells_of(curves))
            ),
            "Each training draws new test strings at every epoch shown, as in the authors' code.",
            f"An epoch is {STEPS_PER_EPOCH} steps of one string. The paper does not say how many epochs Figure 4 "
            "shows; the default of the authors' script is 100.",
            f"Read as: 'near chance', a mean accuracy within {NEAR_CHANCE[0]:g}..{NEAR_CHANCE[1]:g}; '~0', below "
            f"{NEAR_ZERO_BITS:g} bits; 'all', a share above {NEARLY_ALL:g}; 'not perfect', at least one seed "
            "that errs. A claim agrees if its whole 95% interval does.",
            "Shares have Wilson's interval. Means have that of a bootstrap in which one more seed could have the worst "
            "or the best possible value; the worst cross-entropy is taken to be the highest of any training here.",
        ],
    )


def _cell_rows(cell: Cell, curves: Curves, bits: str, accuracy: str) -> list[ComparedValue]:
    right, name = curves[cell, accuracy].final, _name(cell)
    return [
        _perfect_row(cell, right),
        bounded_mean_row(f"{name}: accuracy, mean of {len(right)}", right, ACCURACIES),
        bounded_mean_row(f"{name}: bits, mean of {len(right)}", curves[cell, bits].final, from_zero(curves, bits)),
    ]


def _claims(curves: Curves, bits: str, accuracy: str) -> list[ComparedValue]:
    """The paper's claims, in its order."""
    unscaled = [cell for cell in cells_of(curves) if not cell.is_scaled]
    scaled = [cell for cell in cells_of(curves) if cell.is_scaled]
    right = {cell: curves[cell, accuracy].final for cell in (*unscaled, *scaled)}
    return [
        *(
            bounded_mean_row(
                f"{_name(shortest)}: accuracy",
                right[shortest],
                ACCURACIES,
                published="near chance",
                agrees_within=NEAR_CHANCE,
            )
            for shortest in unscaled[:1]
        ),
        *(
            bounded_difference_row(
                f"{_name(longer)} above {shorter.train_length}, accuracy",
                right[longer],
                right[shorter],
                ACCURACIES,
                published="longer is better",
                agrees_within=ABOVE_ZERO,
            )
            for shorter, longer in itertools.pairwise(unscaled)
        ),
        *(_perfect_row(cell, right[cell], "not perfect", (0.0, math.nextafter(1.0, 0.0))) for cell in unscaled),
        *(_near_zero_row(cell, curves[cell, bits].final) for cell in scaled),
        *(_perfect_row(cell, right[cell], "all", (NEARLY_ALL, 1.0)) for cell in scaled),
    ]


def _perfect_row(
    cell: Cell, right: list[float], published: str | None = None, agrees_within: Bounds | None = None
) -> ComparedValue:
    name = f"{_name(cell)}: share of seeds with accuracy 1"
    n_perfect = sum(value == 1.0 for value in right)
    return share_row(name, n_perfect, len(right), published=published, agrees_within=agrees_within)


def _near_zero_row(cell: Cell, bits: list[float]) -> ComparedValue:
    name = f"{_name(cell)}: share of seeds below {NEAR_ZERO_BITS:g} bits"
    n_near = sum(value < NEAR_ZERO_BITS for value in bits)
    return share_row(name, n_near, len(bits), published="all at ~0", agrees_within=(NEARLY_ALL, 1.0))


def _name(cell: Cell) -> str:
    return f"{'scaled' if cell.is_scaled else 'unscaled'}, n = {cell.train_length}"
