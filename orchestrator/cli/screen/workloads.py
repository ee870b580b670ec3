"""Prints the installed workloads, or the parameters of one, as tables."""

from collections.abc import Mapping

from attnsweep.orchestrator.cli.screen.sweeps import listing
from attnsweep.orchestrator.running.engine_choice import engine_of_shape
from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.workloads.parameters import Parameter, Value
from attnsweep.workloads.registry import load_workload, registered_names

_WIDE = 120
"""The least width of a screen, in columns, on which the meanings fit beside the other columns."""


def print_workloads() -> None:
    """Prints the installed workloads with their summaries."""
    table = listing("workload", "what it trains")
    for name in registered_names():
        table.add_row(name, load_workload(name).summary)
    PlainConsole().print(table)


def print_workload(name: str, values: Mapping[str, Value]) -> None:
    """Prints one workload: its parameters, and the engine that would train it with these values.

    Args:
        name: A workload's name, or FILE.py:CLASS.
        values: The parameters that are not at their defaults.

    Raises:
        UserError: If there is no such workload, or it does not accept the values.
    """
    workload = load_workload(name)
    console = PlainConsole()
    console.print(f"{name}: {workload.summary}")
    console.print(f"engine: {engine_of_shape(workload, values)}\n")
    rows = [
        (
            *(param.name, param.kind.__name__, _shown(values.get(param.name, param.default)), _range(param)),
            *("static" if param.static else "", param.doc),
        )
        for param in workload.parameters.declared().values()
    ]
    heads = ("parameter", "type", "default", "range", "static", "meaning")
    # On a narrow screen the column of meanings would be one word wide, so meanings get a second table.
    n_beside = len(heads) if console.width >= _WIDE else len(heads) - 1
    for columns in (range(n_beside), (0, *range(n_beside, len(heads)))):
        if len(columns) > 1:
            table = listing(*(heads[at] for at in columns))
            for row in rows:
                table.add_row(*(row[at] for at in columns))
            console.print(table)
            console.print()
    console.print("Trainings that differ in a static parameter are in different packs.")


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
