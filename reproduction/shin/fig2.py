"""Figure 2 of Shin & Matzinger 2025: log-MSE of the combined model's four flavours."""

import math
from pathlib import Path

import duckdb
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.analysis.learning_curves import quartile_curves
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import median_difference_row, median_row, share_row
from attnsweep.reproduction.swept import swept

FLAVOURS = {
    "unconstrained": ("unconstrained", "#000000"),
    "lean_1": ("towards solution 1", "#0072B2"),
    "lean_2": ("towards solution 2", "#D55E00"),
    "lean_3": ("towards solution 3", "#009E73"),
}
"""Names and colours (Okabe & Ito 2008)."""

_MAJORITY = (math.nextafter(0.5, 1.0), 1.0)
_FINAL_IN_TRAINING = """
select log10(value / level_mean) from curves join trainings using (training_id)
where param_flavour = ? and metric = 'train_mse' and value > 0
qualify step = max(step) over (partition by training_id)
"""
_FINAL = "select log10(eval_loss / level_mean) from trainings where param_flavour = ? and eval_loss is not null"
_ROLES = """
select role, count(*) from (
    select role from heads join trainings using (training_id, trial, replicate) where param_flavour = 'unconstrained'
    qualify step = max(step) over (partition by training_id)
) group by role
"""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains four flavours x 20 seeds, and compares their final test losses."""
    return compare(swept("shin_flavours", directory, console), directory)


def reproduce_full(directory: Path, console: Console) -> Comparison:
    """The same at the paper's size."""
    return compare(swept_full(directory, console), directory)


def swept_full(directory: Path, console: Console) -> SweepDirectory:
    """The sweep at the paper's size, with compiled gradients, which halve its time."""
    return swept("shin_flavours_full", directory, console, engine="auto")


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws its curves."""
    with Ledger(sweep.place).connect() as connection:
        final = {
            flavour: [loss for (loss,) in connection.execute(_FINAL, [flavour]).fetchall()] for flavour in FLAVOURS
        }
        in_training = {
            flavour: [loss for (loss,) in connection.execute(_FINAL_IN_TRAINING, [flavour]).fetchall()]
            for flavour in FLAVOURS
        }
        roles = dict(connection.execute(_ROLES).fetchall())
        figure = _figure(connection)
    return Comparison(
        title="shin-fig2: log-MSE of the combined model's four flavours",
        source="Shin & Matzinger 2025, section 4.1, Figure 2",
        rows=[
            *(
                median_row(f"log10(test MSE / Var Y), {name}, median", final[flavour], published=None)
                for flavour, (name, _) in FLAVOURS.items()
            ),
            *(
                median_row(f"log10(training MSE / Var Y), {name}, median", in_training[flavour], published=None)
                for flavour, (name, _) in FLAVOURS.items()
            ),
            *_claims(final),
            _mixture(roles),
        ],
        figures=save_figure(figure, directory, "shin-fig2"),
        notes=[
            "The losses that lean a flavour towards a solution are ours (workloads/category_pairs/flavours.py): the "
            "paper does not print its own.",
            size_note(sweep),
        ],
    )


def size_note(sweep: SweepDirectory) -> str:
    """The sizes of a sweep of flavours, beside the paper's."""
    of = sweep.spec.fixed()
    return (
        f"Ours: N = {of['n_categories']}, M = {of['n_positions']}, {of['batch_size']:,} texts, {of['n_steps']:,} "
        f"iterations, {sweep.spec.replicates} seeds a flavour. The paper: N = 10, M = 50, 1,000 texts, 50 iterations, "
        "taken as calls of torch.optim.LBFGS of up to 20 iterations each; --full has this size (two CPU hours)."
    )


def _claims(final: dict[str, list[float]]) -> list[ComparedValue]:
    return [
        median_difference_row(f"{worse} above {better}, decades", final[worse], final[better], published=claim)
        for worse, better, claim in (
            ("lean_2", "lean_1", "1 far better than 2"),
            ("lean_2", "lean_3", "3 far better than 2"),
            ("lean_1", "unconstrained", "unconstrained best"),
            ("lean_3", "unconstrained", "unconstrained best"),
        )
    ]


def _mixture(roles: dict[str, int]) -> ComparedValue:
    return share_row(
        "unconstrained trainings labelled a mixture of 2 and another",
        roles.get("mixed", 0),
        sum(roles.values()),
        published="by combining 3 and 2",
        agrees_within=_MAJORITY,
    )


def _figure(connection: duckdb.DuckDBPyConnection) -> Figure:
    figure = Figure(figsize=(5.4, 3.8), layout="constrained", dpi=200)
    panel = figure.subplots()
    tested, in_training = (
        quartile_curves(connection, "param_flavour", "log10(value / level_mean)", metric=metric)
        for metric in ("eval_loss", "train_mse")
    )
    for flavour, (name, colour) in FLAVOURS.items():
        points = [point for point in tested[flavour] if point.step > 0]
        steps = [point.step for point in points]
        low, middle, high = np.array([(point.low, point.median, point.high) for point in points]).T
        panel.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.plot(steps, middle, color=colour, linewidth=1.4, label=name)
        training = [(point.step, point.median) for point in in_training[flavour] if point.step > 0]
        panel.plot(*zip(*training, strict=True), color=colour, linewidth=1, linestyle=":")
    panel.set_xscale("log")
    panel.set_xlabel("L-BFGS iterations")
    panel.set_ylabel(r"$\log_{10}$(MSE / Var $Y$)")
    panel.legend(frameon=False, fontsize=8, title="test; dotted: training", title_fontsize=8)
    panel.grid(color="0.92", linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
