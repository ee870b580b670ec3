"""Figure 4 of Chiang & Cholak 2022: FIRST learned from strings of one length, tested at length 1,000."""

import itertools
import math
from pathlib import Path

from rich.console import Console

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.chiang.curves import (
    STEPS_PER_EPOCH,
    Cell,
    Curves,
    Panel,
    cells_of,
    draw_curves,
    longest_test_length,
    read_curves,
)
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import Bounds, mean_difference_row, mean_row, share_row
from attnsweep.reproduction.swept import swept

NEAR_CHANCE = (0.4, 0.6)
"""Mean accuracies that count as hardly better than guessing."""
NEARLY_ALL = 0.8
"""If all of 20 seeds have a property, the share among all seeds is above this (95% interval)."""
NEAR_ZERO_BITS = 0.05
"""Mean cross-entropies below this count as ~0."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 4 lengths x 2 scales x 20 seeds for 100 epochs."""
    return compare(swept("chiang_fig4", directory, console), directory, "chiang-fig4")


def reproduce_long(directory: Path, console: Console) -> Comparison:
    """Trains the same for 1,000 epochs: do the claims hold once all lengths are learned?"""
    return compare(swept("chiang_fig4_long", directory, console), directory, "chiang-fig4-long")


def compare(sweep: SweepDirectory, directory: Path, name: str) -> Comparison:
    """Reads a finished sweep, draws its curves, and compares their ends with the paper's claims."""
    length = longest_test_length(sweep)
    bits, accuracy, attention = f"cross_entropy_{length}", f"accuracy_{length}", f"first_attention_{length}"
    curves = read_curves(sweep, (bits, accuracy, attention, "eval_loss"))
    figure = draw_curves(
        curves,
        (
            Panel(metric=bits, label=f"cross-entropy at {length}\n(bits)", chance=1.0),
            Panel(metric=accuracy, label=f"accuracy at {length}", chance=0.5, limits=(0.35, 1.02)),
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
            "Scaled: log n multiplies the layer's input before its projection to queries, and so not the queries' "
            "bias, as in the authors' code. The paper's equation 2 multiplies the logits: "
            f"attnsweep run {sweep.spec.name} --set attention_scale=log_n_inv_sqrt_d --trials 4.",
            f"{_share_at_rest(curves)} trainings end at a loss of exactly 0 at their own length. Beyond a logit "
            "margin of 17 the workload's cross-entropy has no gradient in float32, so they no longer move.",
            "Each training has its own test strings, the same at every epoch; the authors draw new ones each time.",
            f"An epoch is {STEPS_PER_EPOCH} steps of one string. The paper does not say how many epochs Figure 4 "
            "shows; the default of the authors' script is 100.",
            f"Read as: 'near chance', a mean accuracy within {NEAR_CHANCE[0]:g}..{NEAR_CHANCE[1]:g}; '~0', a mean "
            f"below {NEAR_ZERO_BITS:g} bits; 'all', a share above {NEARLY_ALL:g}; 'not perfect', at least one seed "
            "that errs. A claim agrees if its whole 95% interval does.",
        ],
    )


def _cell_rows(cell: Cell, curves: Curves, bits: str, accuracy: str) -> list[ComparedValue]:
    final = curves[cell, bits].final
    name = f"{_name(cell)}: %s, mean of {len(final)}"
    return [_bits_row(name % "bits", final), _accuracy_row(name % "accuracy", curves[cell, accuracy].final)]


def _claims(curves: Curves, bits: str, accuracy: str) -> list[ComparedValue]:
    """The paper's claims, in its order."""
    unscaled = [cell for cell in cells_of(curves) if not cell.is_scaled]
    scaled = [cell for cell in cells_of(curves) if cell.is_scaled]
    right = {cell: curves[cell, accuracy].final for cell in (*unscaled, *scaled)}
    shortest = unscaled[0]
    return [
        _accuracy_row(f"{_name(shortest)}: accuracy", right[shortest], "near chance", NEAR_CHANCE),
        *(
            mean_difference_row(
                f"{_name(longer)} above {shorter.train_length}, accuracy",
                right[longer],
                right[shorter],
                published="longer is better",
            )
            for shorter, longer in itertools.pairwise(unscaled)
        ),
        *(_perfect_row(cell, right[cell], "not perfect", (0.0, math.nextafter(1.0, 0.0))) for cell in unscaled),
        *(_bits_row(f"{_name(cell)}: bits", curves[cell, bits].final, "~0", (0.0, NEAR_ZERO_BITS)) for cell in scaled),
        *(_perfect_row(cell, right[cell], "all", (NEARLY_ALL, 1.0)) for cell in scaled),
    ]


def _accuracy_row(
    name: str, values: list[float], published: str | None = None, agrees_within: Bounds | None = None
) -> ComparedValue:
    return mean_row(name, values, published=published, agrees_within=agrees_within, possible=(0.0, 1.0))


def _bits_row(
    name: str, values: list[float], published: str | None = None, agrees_within: Bounds | None = None
) -> ComparedValue:
    return mean_row(name, values, published=published, agrees_within=agrees_within, possible=(0.0, math.inf))


def _perfect_row(cell: Cell, right: list[float], published: str, agrees_within: Bounds) -> ComparedValue:
    name = f"{_name(cell)}: share of seeds with accuracy 1"
    n_perfect = sum(value == 1.0 for value in right)
    return share_row(name, n_perfect, len(right), published=published, agrees_within=agrees_within)


def _share_at_rest(curves: Curves) -> str:
    final = [value for cell in cells_of(curves) for value in curves[cell, "eval_loss"].final]
    return f"{sum(value == 0.0 for value in final)} of {len(final)}"


def _name(cell: Cell) -> str:
    return f"{'scaled' if cell.is_scaled else 'unscaled'}, n = {cell.train_length}"
