"""The roles of a sweep's attention heads, in tables: for the end of a run, `--json` and MLflow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.rates.intervals import rate_label
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence, emergence_of
from attnsweep.orchestrator.analysis.roles.history import role_histories
from attnsweep.orchestrator.analysis.roles.rates import RoleRate, RoleRatesBy, rates_by_parameter_of, rates_of
from attnsweep.search_spaces.sweep import Sweep

_MOST_MARKDOWN_COLUMNS = 4
"""Markdown leaves out a table of roles by parameter with more columns; the JSON has its numbers."""


@dataclass(frozen=True, slots=True)
class RoleResults:
    """The roles of attention heads. All tuples have one element per layer and role, in the same order.

    Attributes:
        rates: How often each role occurs.
        emergence: When it emerges.
        by_parameter: Under which hyperparameters it occurs.
        layer_names: The workload's names for layers 0, 1, ...; empty if it has none, or is not installed.
    """

    rates: tuple[RoleRate, ...]
    emergence: tuple[RoleEmergence, ...]
    by_parameter: tuple[RoleRatesBy, ...]
    layer_names: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The labels of the roles, each once."""
        return list(dict.fromkeys(rate.role for rate in self.rates))

    def layer_name(self, layer: int | None) -> str:
        """The name of a layer, or its number if it has no name."""
        if layer is None:
            return "any"
        return self.layer_names[layer] if layer < len(self.layer_names) else str(layer)

    def layer_title(self, layer: int | None) -> str:
        """A layer in words: `encoder self`, `layer 0`, `any layer`."""
        return layer_title(self.layer_names, layer)

    def rows(self) -> Iterator[tuple[RoleRate, RoleEmergence]]:
        """The rate and the emergence of each role in each layer, role by role."""
        pairs = list(zip(self.rates, self.emergence, strict=True))
        yield from sorted(pairs, key=lambda pair: self.names.index(pair[0].role))

    def as_json(self) -> list[dict[str, Any]]:
        """Rates and emergence as plain values for JSON."""
        return [
            {
                "role": rate.role,
                "layer": rate.layer,
                "layer_name": self.layer_name(rate.layer),
                **rate.rate.as_json(),
                "head_share": rate.head_share,
                "median_step": when.median_step,
                "median_share_of_steps": when.median_share,
            }
            for rate, when in self.rows()
        ]

    def by_parameter_as_json(self) -> list[dict[str, Any]]:
        """Rates by parameter as plain values for JSON."""
        return [
            {
                "role": each.role,
                "layer": each.layer,
                "layer_name": self.layer_name(each.layer),
                "by": [parameter.as_json() for parameter in each.by_parameter],
            }
            for each in self.by_parameter
        ]

    def markdown_lines(self) -> Iterator[str]:
        """The tables in Markdown."""
        yield "| role | layer | trainings with it (95% interval) | heads | median step of emergence |"
        yield "|---|---|---|---|---|"
        for rate, when in self.rows():
            words = (rate.role, self.layer_name(rate.layer), rate_label(rate.rate), f"{rate.head_share:.1%}")
            yield f"| {' | '.join(words)} | {step_label(when)} |"
        if len(self.by_parameter) > _MOST_MARKDOWN_COLUMNS:
            return
        heading = " | ".join(f"{each.role}, {self.layer_name(each.layer)}" for each in self.by_parameter)
        for index, parameter in enumerate(self.by_parameter[0].by_parameter):
            yield ""
            yield f"| {parameter.title} | trials | {heading} |"
            yield "|---|---|" + "---|" * len(self.by_parameter)
            for place, each in enumerate(parameter.bins):
                rates = (role.by_parameter[index].bins[place].rate for role in self.by_parameter)
                yield f"| {each.label} | {each.n_trials} | {' | '.join(map(rate_label, rates))} |"


def read_role_results(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> RoleResults | None:
    """Reads the roles of a sweep's heads; `None` if it has no heads that could have a role.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    histories = role_histories(connection)
    if not histories:
        return None
    return RoleResults(
        rates_of(histories, spec),
        emergence_of(histories, spec),
        rates_by_parameter_of(histories, connection, spec),
        layer_names_of(spec.workload),
    )


def step_label(when: RoleEmergence) -> str:
    """`2,000 (25% through)`: the median step of emergence, and its share of the steps if all trainings took as many;
    `-` if no role emerged."""
    if when.median_step is None:
        return "-"
    through = "" if when.median_share is None else f" ({when.median_share:.0%} through)"
    return f"{when.median_step:,}{through}"


def layer_title(names: Sequence[str], layer: int | None) -> str:
    """A layer in words, by the names of layers 0, 1, ...: `encoder self`, `layer 0`, `any layer`."""
    if layer is None:
        return "any layer"
    return names[layer].replace("_", " ") if layer < len(names) else f"layer {layer}"


def layer_names_of(workload: str) -> tuple[str, ...]:
    """The names of the layers of a workload's heads; empty if it has none, or is not installed.

    A workload that a sweep directory names by its file is not loaded, so that looking at a stranger's sweep runs none
    of its code.
    """
    # Imported only if there are heads, because it imports torch.
    from attnsweep.workloads.registry import load_workload, registered_names

    return load_workload(workload).head_layer_names if workload in registered_names() else ()
