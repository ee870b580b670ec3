"""What there is to run: the shipped sweeps, the installed workloads, and the parameters of one."""

from collections.abc import Mapping

from rich.table import Table

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.orchestrator.tools.engine_of_shape import engine_of_shape
from attnsweep.search_spaces.loading import load_sweep, shipped_names
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.parameters import Parameter, Value
from attnsweep.workloads.registry import load_workload, registered_names


def print_sweeps() -> None:
    """Prints the shipped sweeps: what they train, how often, and what varies."""
    table = _table("sweep", "workload", "trainings", "what it answers, and what varies")
    for name in shipped_names():
        sweep = load_sweep(name)
        varied = ", ".join([*sweep.varied(), *sweep.conditional()])
        table.add_row(name, sweep.workload, _budget(sweep), f"{sweep.description} ({varied})")
    PlainConsole().print(table)


def print_workloads() -> None:
    """Prints the installed workloads."""
    table = _table("workload", "what it trains")
    for name in registered_names():
        table.add_row(name, load_workload(name).summary)
    PlainConsole().print(table)


def print_workload(name: str, values: Mapping[str, Value]) -> None:
    """Prints one workload, the engine that trains a shape of it, and its parameters.

    Args:
        name: A workload's name, or FILE.py:CLASS.
        values: The parameters of the shape that are not at their defaults.

    Raises:
        UserError: If there is no such workload, or it does not accept the values.
    """
    workload = load_workload(name)
    console = PlainConsole()
    console.print(f"{name}: {workload.summary}")
    console.print(f"engine: {engine_of_shape(workload, values)}\n")
    table = _table("parameter", "type", "default", "range", "static", "meaning")
    for each in workload.parameters.declared().values():
        default = _shown(values.get(each.name, each.default))
        table.add_row(each.name, each.kind.__name__, default, _range(each), "static" if each.static else "", each.doc)
    console.print(table)
    console.print("\nTrainings that differ in a static parameter are in different packs.")


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in ("sweep", "workload", "parameter"))
    return table


def _budget(sweep: Sweep) -> str:
    replicates = sweep.replicates if isinstance(sweep.replicates, int) else f"up to {sweep.replicates.at_most}"
    return f"{sweep.trials} x {replicates}"


def _range(parameter: Parameter) -> str:
    if parameter.choices is not None:
        words = [", ".join(parameter.choices)]
    else:
        bounds = {"> ": parameter.above, ">= ": parameter.low, "<= ": parameter.high}
        words = [" and ".join(f"{sign}{bound:g}" for sign, bound in bounds.items() if bound is not None)]
    return ", or ".join(filter(None, [*words, "null" if parameter.optional else ""]))


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
