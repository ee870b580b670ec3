"""Figure 1 of Shin & Matzinger 2025: the model of solution 2 learns a scaled q* as k^t q."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console

from attnsweep.orchestrator.inspection.kept_weights import ended_lanes
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import Comparison, save_figure
from attnsweep.reproduction.rows import median_row
from attnsweep.reproduction.shin.heat_map import draw_heat_map
from attnsweep.reproduction.swept import swept

_MATCH = """
select training_id, score_match_logits_target, eval_loss / level_mean
from heads join trainings using (training_id, trial, replicate)
qualify row_number() over (partition by training_id order by step desc) = 1
order by score_match_logits_target
"""
"""The last probe of each training, the worst match first."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 20 seeds of solution 2's model, and compares their k^t q with q*."""
    return compare(swept("shin_solution_2", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws the training of median correlation."""
    with Ledger(sweep.place).connect() as connection:
        found = connection.execute(_MATCH).fetchall()
    middle = found[len(found) // 2][0]
    _, state = ended_lanes(sweep, [middle])
    logits = (state["k_SS"].mT @ state["q_SS"])[0].double().numpy()
    figure = _figure(state["target_NN"][0].double().numpy(), logits)
    return Comparison(
        title="shin-fig1: the learned k^t q of solution 2 beside q*",
        source="Shin & Matzinger 2025, section 4.1, Figure 1",
        rows=[
            median_row(
                f"|correlation| of k^t q with q*, median of {len(found)} seeds",
                [match for _, match, _ in found],
                published="a scaled q*",
                agrees_above=0.95,
            ),
            median_row("test MSE / Var Y, median", [loss for _, _, loss in found], published=None),
        ],
        figures=save_figure(figure, directory, "shin-fig1"),
        notes=[
            "Columns of k^t q are compared without their means: a constant per current category says nothing about the "
            "previous category.",
            f"Drawn: the seed of median correlation, training {middle}.",
            'The paper\'s "50 iterations" are taken as calls of torch.optim.LBFGS of up to 20 iterations each. Ours '
            "are 300 single iterations at N = 10, M = 50, 1,000 texts.",
        ],
    )


def _figure(target_NN: NDArray[np.float64], logits_NN: NDArray[np.float64]) -> Figure:
    figure = Figure(figsize=(9.6, 3.2), layout="constrained", dpi=200)
    left, middle, right = figure.subplots(1, 3)
    names = ("current category", "previous category")
    draw_heat_map(left, target_NN - target_NN.mean(0), r"$q^*$ less column means", *names)
    learned = logits_NN - logits_NN.mean(0)
    draw_heat_map(middle, learned, r"learned $k^\top q$ less column means", *names)
    x, y = (target_NN - target_NN.mean(0)).ravel(), learned.ravel()
    right.plot(x, y, "o", markersize=3, color="#0072B2")
    right.axline((0, 0), slope=float(x @ y / (x @ x)), color="#595959", linewidth=0.8)
    right.set_xlabel(r"$q^*$")
    right.set_ylabel(r"learned $k^\top q$")
    right.set_title(f"entry by entry, r = {np.corrcoef(x, y)[0, 1]:.4f}", fontsize=9)
    right.spines[["top", "right"]].set_visible(False)
    return figure
