"""The figure and table of docs/translation.md on restricted attention, from the sweep `attention_structure`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.rows import mean_difference_row, mean_interval, mean_row
from attnsweep.reproduction.swept import swept

_COLOURS = {0: "#000000", 1: "#0072B2", 2: "#D55E00", 4: "#009E73"}
"""Okabe & Ito 2008, by number of rare-token columns."""
_LOSSES = "select param_window, param_num_pos, eval_loss from trainings order by training_id"

Losses = Mapping[tuple[int, int], Sequence[float]]
"""Held-out losses by window and number of rare-token columns."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 20 structures x 8 seeds of small translators, and compares their held-out losses."""
    return compare(swept("attention_structure", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws its losses."""
    losses: dict[tuple[int, int], list[float]] = {}
    full: list[float] = []
    with Ledger(sweep.place).connect() as connection:
        for window, num_pos, loss in connection.execute(_LOSSES).fetchall():
            (full if window is None else losses.setdefault((window, num_pos), [])).append(loss)
    return Comparison(
        title="How small may the structure of attention be?",
        source="attnsweep, docs/translation.md",
        rows=[
            mean_row(f"held-out nats per token, full attention, mean of {len(full)}", full),
            *(_difference(window, num_pos, losses[window, num_pos], full) for window, num_pos in sorted(losses)),
        ],
        figures=save_figure(_figure(losses, full), directory, "attention_structure"),
        notes=["Rows of a window: nats per token above full attention, Welch's interval."],
    )


def _difference(window: int, num_pos: int, values: Sequence[float], full: Sequence[float]) -> ComparedValue:
    return mean_difference_row(f"window {window}, num_pos {num_pos}: above full attention", values, full)


def _figure(losses: Losses, full: Sequence[float]) -> Figure:
    windows, columns = (sorted({key[axis] for key in losses}) for axis in (0, 1))
    figure = Figure(figsize=(5.2, 3.4), layout="constrained", dpi=150)
    panel = figure.subplots()
    mean, low, high = mean_interval(full)
    panel.axhspan(low, high, color="0.8")
    panel.axhline(mean, color="0.4", linewidth=1, label="all tokens")
    for shift, num_pos in enumerate(columns):
        found = [mean_interval(losses[window, num_pos]) for window in windows]
        panel.errorbar(
            [place + 0.08 * (shift - 1.5) for place in range(len(windows))],
            [mean for mean, _, _ in found],
            [[mean - low for mean, low, _ in found], [high - mean for mean, _, high in found]],
            color=_COLOURS[num_pos],
            marker="o",
            markersize=4,
            linewidth=1,
            capsize=3,
            label=f"{num_pos} rare-token columns",
        )
    panel.set_xticks(range(len(windows)), [str(window) for window in windows])
    panel.set_xlabel("window $w$ (tokens to either side)")
    panel.set_ylabel("held-out cross-entropy (nats per token)")
    panel.legend(frameon=False)
    return figure
