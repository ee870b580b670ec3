"""Prints the shipped sweeps as a table. Fast to import: it needs no torch."""

from rich.table import Table

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.search_spaces.loading import load_sweep, shipped_names
from attnsweep.search_spaces.sweep import Sweep


def print_sweeps() -> None:
    """Prints the shipped sweeps with workload, number of trainings, question and varied parameters."""
    table = listing("sweep", "workload", "trainings", "what it answers, and what varies")
    for name in shipped_names():
        sweep = load_sweep(name)
        varied = ", ".join([*sweep.varied(), *sweep.conditional()])
        table.add_row(name, sweep.workload, _budget(sweep), f"{sweep.description} ({varied})")
    PlainConsole().print(table)


def listing(*columns: str) -> Table:
    """Makes a table without ruled lines, for names and long texts."""
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("sweep", "workload", "parameter"))
    return table


def _budget(sweep: Sweep) -> str:
    replicates = sweep.replicates if isinstance(sweep.replicates, int) else f"up to {sweep.replicates.at_most}"
    return f"{sweep.trials} x {replicates}"
