"""When a role emerges, by the bins of parameters and by layer."""

from collections.abc import Sequence

import duckdb
import numpy as np

from attnsweep.orchestrator.analysis.onset.hazards import Factor
from attnsweep.orchestrator.analysis.onset.onset import Onset, factors_of, onset_curves
from attnsweep.orchestrator.analysis.onset.onset_times import OnsetTimes
from attnsweep.orchestrator.analysis.rates.crossing import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import trials_count_once
from attnsweep.orchestrator.analysis.roles.history import RoleHistory, role_histories
from attnsweep.orchestrator.analysis.roles.results import layer_names_of, layer_title
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError, did_you_mean

LAYER = "layer"


def read_emergence(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], role: str, names: Sequence[str], layer: int | None
) -> Onset:
    """When a role emerges, in groups.

    Args:
        connection: From `Ledger.connect`.
        specs: The specs of the sweeps in the ledger.
        role: The role's label.
        names: The parameters whose bins are the groups; `layer` among them stands for the layer.
        layer: The number of a layer; `None` for any.

    Raises:
        UserError: For a role that cannot occur there, or a parameter that the ledger has no column for.
    """
    found = role_histories(connection, any_layer=layer is None and LAYER not in names)
    inside = [each for each in found if layer in (None, each.layer)]
    chosen = [each for each in inside if each.role == role]
    if not chosen:
        there = sorted({each.role for each in inside})
        raise UserError(
            "role",
            given=role,
            expected=f"one of {', '.join(there)}" if there else "a workload with attention heads",
            fix=did_you_mean(role, there, otherwise="see docs/roles.md"),
        )
    onsets = [each.onsets for each in chosen]
    columns = zip(*((each.trial, each.step, each.came) for each in onsets), strict=True)
    times = OnsetTimes(*(np.concatenate(column) for column in columns))
    crossing = read_crossing(connection, specs, [name for name in names if name != LAYER])
    factors = {factor.name: factor for factor in factors_of(times, crossing)}
    if LAYER in names:
        titles = layer_names_of(specs[0].workload)
        place = np.repeat(np.arange(len(chosen)), [len(each.trial) for each in onsets])
        factors[LAYER] = Factor(LAYER, tuple(layer_title(titles, each.layer) for each in chosen), place)
    ordered, once = tuple(factors[name] for name in names), trials_count_once(*specs)
    return Onset(role, ",".join(names), onset_curves(times, ordered, once), ending_note(chosen), times, ordered, once)


def ending_note(histories: Sequence[RoleHistory]) -> str:
    """What curves of emergence assume, if trainings ended before their step budget; else empty."""
    n_ended = max((int((each.n_steps < each.budget)[each.is_followed].sum()) for each in histories), default=0)
    if n_ended == 0:
        return ""
    return (
        f"{n_ended:,} trainings ended before their step budget and are censored there, as if the role would have "
        "emerged in them later as often as in the others"
    )
