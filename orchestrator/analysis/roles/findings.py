"""What a sweep's attention heads came to do, in a table: for the end of a run, `--json` and MLflow."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from attnsweep.orchestrator.analysis.intervals import rate_label
from attnsweep.orchestrator.analysis.roles.emergence import RoleEmergence, emergence_of
from attnsweep.orchestrator.analysis.roles.history import role_histories
from attnsweep.orchestrator.analysis.roles.rates import RoleRate, RoleRatesBy, rates_by_parameter_of, rates_of
from attnsweep.search_spaces.sweep import Sweep

_MOST_MARKDOWN_COLUMNS = 4
"""Of roles by parameter: wider tables are left to the JSON and to Python."""


@dataclass(frozen=True, slots=True)
class RoleFindings:
    """Roles and their emergence, one of each for every layer and role, in the same order.

    Attributes:
        rates: How often.
        emergence: When.
        by_parameter: Under which hyperparameters.
        layer_names: Of layers 0, 1, ..., as the workload calls them; empty where it does not, or is gone.
    """

    rates: tuple[RoleRate, ...]
    emergence: tuple[RoleEmergence, ...]
    by_parameter: tuple[RoleRatesBy, ...]
    layer_names: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        """The roles, each once."""
        return list(dict.fromkeys(rate.role for rate in self.rates))

    def layer_name(self, layer: int | None) -> str:
        """What a layer is called: its number where it has no name."""
        if layer is None:
            return "any"
        return self.layer_names[layer] if layer < len(self.layer_names) else str(layer)

    def layer_title(self, layer: int | None) -> str:
        """The same in words: `encoder self`, `layer 0`, `any layer`."""
        return layer_title(self.layer_names, layer)

    def rows(self) -> Iterator[tuple[RoleRate, RoleEmergence]]:
        """Each role in each layer, role by role."""
        pairs = list(zip(self.rates, self.emergence, strict=True))
        yield from sorted(pairs, key=lambda pair: self.names.index(pair[0].role))

    def as_json(self) -> list[dict[str, Any]]:
        """Plain values."""
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
        """Plain values."""
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
        """Tables in Markdown."""
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


def read_role_findings(connection: duckdb.DuckDBPyConnection, spec: Sweep) -> RoleFindings | None:
    """Reads what a sweep's heads came to do; `None` where it has no heads that could have a role.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
    """
    histories = role_histories(connection)
    if not histories:
        return None
    return RoleFindings(
        rates_of(histories, spec),
        emergence_of(histories, spec),
        rates_by_parameter_of(histories, connection, spec),
        layer_names_of(spec.workload),
    )


def step_label(when: RoleEmergence) -> str:
    """`2,000 (25% through)`: the median step of emergence, and how far through the training; `-` where none emerged."""
    if when.median_step is None or when.median_share is None:
        return "-"
    return f"{when.median_step:,.0f} ({when.median_share:.0%} through)"


def layer_title(names: Sequence[str], layer: int | None) -> str:
    """A layer in words, by the names of layers 0, 1, ...: `encoder self`, `layer 0`, `any layer`."""
    if layer is None:
        return "any layer"
    return names[layer].replace("_", " ") if layer < len(names) else f"layer {layer}"


def layer_names_of(workload: str) -> tuple[str, ...]:
    """What an installed workload calls the layers of its heads; empty where it does not, or is none.

    One that a sweep directory names by its file is not loaded: who looks at a stranger's sweep runs none of its code.
    """
    # Brings torch along, so only where there are heads.
    from attnsweep.workloads.registry import load_workload, registered_names

    return load_workload(workload).head_layer_names if workload in registered_names() else ()
