"""The figure and tables of docs/translation.md on the roles of heads, from the sweep `head_roles`."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import Rate
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence, role_emergence
from attnsweep.orchestrator.analysis.roles.results import RoleRatesBy, role_rates, role_rates_by
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.reproduction.comparison import ComparedValue, Comparison, save_figure
from attnsweep.reproduction.swept import swept
from attnsweep.workloads.translation.translator import LAYERS

_COLOURS = {"positional": "#0072B2", "syntactic": "#D55E00", "rare_token": "#009E73"}
"""Okabe & Ito 2008, by role."""
_FEWEST = 10
"""A role is split by parameter if at least this many trainings have it."""


def reproduce(directory: Path, console: Console) -> Comparison:
    """Trains 128 trials x 4 seeds of small translators, and lists the roles that their heads take."""
    return compare(swept("head_roles", directory, console), directory)


def compare(sweep: SweepDirectory, directory: Path) -> Comparison:
    """Reads a finished sweep, and draws how roles emerge."""
    with Ledger(sweep.place).connect() as connection:
        emergences = role_emergence(connection, sweep.spec)
        rates = role_rates(connection, sweep.spec)
        by_parameter = role_rates_by(connection, sweep.spec)
    steps = {(each.layer, each.role): each.median_step for each in emergences}
    table = [["role", "layer", "trainings", "heads", "median step of emergence"]]
    rows = []
    for each in rates:
        assert each.layer is not None
        step = steps[each.layer, each.role]
        shown = "-" if step is None else f"{step:.0f}"
        table.append([each.role, LAYERS[each.layer], _text(each.rate), f"{each.head_share:.1%}", shown])
        rows.append(
            ComparedValue(
                name=f"trainings with a {each.role} head, {LAYERS[each.layer]}",
                published=None,
                ours="-" if each.rate.share is None else each.rate.share,
                low=each.rate.low,
                high=each.rate.high,
            )
        )
    return Comparison(
        title="Which roles the heads of small translators take, and when",
        source="attnsweep, docs/translation.md",
        rows=rows,
        tables=[("At the end of training", table), ("By parameter", _by_parameter(by_parameter))],
        figures=save_figure(_figure(emergences), directory, "head_roles"),
        notes=["Intervals count the trainings of one trial as dependent."],
    )


def _by_parameter(found: Sequence[RoleRatesBy]) -> list[list[str]]:
    lines = [["role", "layer", "parameter", "bin", "trainings"]]
    for by in found:
        if by.layer is None or sum(one.rate.k for one in by.by_parameter[0].bins) < _FEWEST:
            continue
        for parameter in by.by_parameter:
            where = [by.role, LAYERS[by.layer], parameter.title]
            lines += [[*where, one.label, _text(one.rate)] for one in parameter.bins if one.n_trials]
    return lines


def _figure(emergences: Sequence[RoleEmergence]) -> Figure:
    figure = Figure(figsize=(9.0, 2.8), layout="constrained", dpi=150)
    panels = figure.subplots(1, len(LAYERS), sharey=True)
    for each in emergences:
        assert each.layer is not None
        panel, colour = panels[each.layer], _COLOURS[each.role]
        # Step 0 has no place on a logarithmic axis.
        steps = [max(point.step, 10) for point in each.curve]
        shares = [point.share for point in each.curve]
        panel.plot(steps, shares, color=colour, marker="o", markersize=3, label=each.role)
        low, high = [point.low for point in each.curve], [point.high for point in each.curve]
        panel.fill_between(steps, low, high, color=colour, alpha=0.15)
    for panel, name in zip(panels, LAYERS, strict=True):
        panel.set_xscale("log")
        panel.set_xlabel("step")
        panel.set_title(name.replace("_", " "))
    panels[0].set_ylabel("share of trainings")
    panels[0].legend(frameon=False)
    return figure


def _text(rate: Rate) -> str:
    return "-" if rate.share is None else f"{rate.share:.2f} [{rate.low:.2f}, {rate.high:.2f}]"
