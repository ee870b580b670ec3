"""Figures and tables of docs/translation.md, from the ledgers of two shipped sweeps.

    attnsweep run head_roles --dir sweeps/head_roles
    attnsweep run attention_structure --dir sweeps/attention_structure
    python docs/figures/translators.py sweeps/head_roles sweeps/attention_structure [--out docs/figures]

Writes attention_structure.png and head_roles.png, and prints the tables as Markdown.
"""

import argparse
import sys
from pathlib import Path

from matplotlib.figure import Figure

from attnsweep.orchestrator.analysis.intervals import Rate
from attnsweep.orchestrator.analysis.roles.emergence import role_emergence
from attnsweep.orchestrator.analysis.roles.rates import role_rates, role_rates_by
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.means import mean_interval
from attnsweep.workloads.translation.translator import LAYERS

COLOURS = {0: "#000000", 1: "#0072B2", 2: "#D55E00", 4: "#009E73"}
ROLE_COLOURS = {"positional": "#0072B2", "syntactic": "#D55E00", "rare_token": "#009E73"}


def main() -> None:
    """Reads the ledgers, prints and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("head_roles", type=Path)
    parser.add_argument("attention_structure", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options = parser.parse_args()
    roles(options.head_roles, options.out)
    structure(options.attention_structure, options.out)


def roles(path: Path, out: Path) -> None:
    """Rates of roles over a sweep, by each parameter where there are any, and how they emerge."""
    directory = SweepDirectory.open(path)
    connection = Ledger(path).connect()
    _say("| role | layer | trainings | heads | median step of emergence |\n|---|---|---|---|---|")
    emergences = {(each.layer, each.role): each for each in role_emergence(connection, directory.spec)}
    for each in role_rates(connection, directory.spec):
        step = emergences[each.layer, each.role].median_step
        shown = "-" if step is None else f"{step:.0f}"
        _say(f"| {each.role} | {LAYERS[each.layer]} | {_text(each.rate)} | {each.head_share:.1%} | {shown} |")
    for by in role_rates_by(connection, directory.spec):
        if sum(one.rate.k for one in by.by_parameter[0].bins) < 10:
            continue
        for parameter in by.by_parameter:
            bins = ", ".join(f"{one.label}: {_text(one.rate)}" for one in parameter.bins if one.n_trials)
            _say(f"\n{by.role}, {LAYERS[by.layer]}, by {parameter.title}: {bins}")
    figure = Figure(figsize=(9.0, 2.8), layout="constrained")
    axes = figure.subplots(1, len(LAYERS), sharey=True)
    for (layer, role), each in emergences.items():
        steps = [max(point.step, 10) for point in each.curve]
        colour = ROLE_COLOURS[role]
        axes[layer].plot(
            steps, [point.share for point in each.curve], color=colour, marker="o", markersize=3, label=role
        )
        axes[layer].fill_between(
            steps, [point.low for point in each.curve], [point.high for point in each.curve], color=colour, alpha=0.15
        )
    for layer, name in enumerate(LAYERS):
        axes[layer].set_xscale("log")
        axes[layer].set_xlabel("step")
        axes[layer].set_title(name.replace("_", " "))
    axes[0].set_ylabel("share of trainings")
    axes[0].legend(frameon=False)
    figure.savefig(out / "head_roles.png", dpi=150)


def structure(path: Path, out: Path) -> None:
    """Held-out loss by window and number of columns, against full attention."""
    connection = Ledger(path).connect()
    rows = connection.execute("select param_window, param_num_pos, eval_loss from trainings order by training_id")
    losses: dict[tuple[int | None, int], list[float]] = {}
    for window, num_pos, loss in rows.fetchall():
        losses.setdefault((window, 0 if window is None else num_pos), []).append(loss)
    full = losses.pop((None, 0))
    mean, low, high = mean_interval(full)
    _say(f"\nfull attention: {mean:.3f} [{low:.3f}, {high:.3f}] nats, {len(full)} trainings")
    windows, columns = (sorted({key[axis] for key in losses}) for axis in (0, 1))
    _say("| window | " + " | ".join(f"num_pos {num_pos}" for num_pos in columns) + " |\n|---|" + "---|" * len(columns))
    for window in windows:
        cells = [mean_interval(losses[window, num_pos], full) for num_pos in columns]
        _say(f"| {window} | " + " | ".join(f"{more:+.3f} [{a:+.3f}, {b:+.3f}]" for more, a, b in cells) + " |")
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axis = figure.subplots()
    axis.axhspan(low, high, color="0.8")
    axis.axhline(mean, color="0.4", linewidth=1, label="all tokens")
    for shift, num_pos in enumerate(columns):
        found = [mean_interval(losses[window, num_pos]) for window in windows]
        axis.errorbar(
            [place + 0.08 * (shift - 1.5) for place in range(len(windows))],
            [each[0] for each in found],
            [[each[0] - each[1] for each in found], [each[2] - each[0] for each in found]],
            color=COLOURS[num_pos],
            marker="o",
            markersize=4,
            linewidth=1,
            capsize=3,
            label=f"{num_pos} rare-token columns",
        )
    axis.set_xticks(range(len(windows)), [str(window) for window in windows])
    axis.set_xlabel("window $w$ (tokens to either side)")
    axis.set_ylabel("held-out cross-entropy (nats per token)")
    axis.legend(frameon=False)
    figure.savefig(out / "attention_structure.png", dpi=150)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _text(rate: Rate) -> str:
    return "-" if rate.share is None else f"{rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}]"


if __name__ == "__main__":
    main()
