"""How often trainings reach a goal (an outcome, an event or a role) sooner with an intervention than without.

A pair is two trainings with the same seed and the same parameters except `intervention`, which is null in one of them.
It is informative if one of them is known to have reached the goal first, not at the same probe. The ratio is the number
of pairs where the training with the intervention was sooner over the number where it was later; its interval is Clopper
and Pearson's exact one.

The intervals take only the seed as random: the initialization, the data and their order. They hold for the
configurations of this sweep, over which pairs are pooled, and are not adjusted for the number of goals.

Source: Holt & Prentice 1974, Biometrika 61 (paired times); Clopper & Pearson 1934. Axis: N pair.
"""

from collections.abc import Iterator
from typing import TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.onset_times import OnsetTimes, event_times, outcome_onsets
from attnsweep.orchestrator.analysis.rates.intervals import exact_interval
from attnsweep.orchestrator.analysis.role_emergence import layer_names_of, layer_title, role_histories
from attnsweep.orchestrator.analysis.tables import Row, table_of
from attnsweep.orchestrator.ledger.views import IS_JUDGED, names_with, param_column
from attnsweep.workloads.interventions import INTERVENTION

_Place: TypeAlias = tuple[int, int]
"""Trial and replicate."""
_COUNTS = ("n_pairs", "n_with", "n_without", "median_with", "median_without", "n_sooner", "n_later")


def interventions(connection: duckdb.DuckDBPyConnection, workload: str) -> pa.Table:
    """One row per intervention and goal that any training of a pair reached."""
    pairs, rows = _read_pairs(connection), []
    for what, ends in _reached(connection, workload) if pairs else ():
        for intervention, places in pairs.items():
            known = [[ends[place] for place in pair] for pair in places if {*pair} <= ends.keys()]
            of_with, of_without = np.array(known, np.int64).reshape(-1, 2, 2).swapaxes(0, 1)  # each (N, 2)
            rows.append({"what": what, "intervention": intervention} | paired_ratio(of_with, of_without))
    reached = {row["what"] for row in rows if row["n_with"] + row["n_without"]}
    columns = {"what": str, "intervention": str, **dict.fromkeys(_COUNTS, int)}
    columns |= dict.fromkeys(("ratio", "low", "high"), float)
    return table_of(columns, (row for row in rows if row["what"] in reached))


def paired_ratio(of_with: NDArray[np.int64], of_without: NDArray[np.int64]) -> Row:
    """The ratio with its 95% interval, counts and medians.

    Args:
        of_with, of_without: (N, 2) the training with the intervention, and the one without, of each of N pairs: the
            step, and whether it had reached the goal by then. If it had not, no more is known (censored).
    """
    (step, reached), (other_step, other_reached) = of_with.T, of_without.T
    reached, other_reached = reached > 0, other_reached > 0
    # A censored training reaches the goal after its step: one that had it at the same step was sooner.
    n_sooner = int((reached & (step < other_step + ~other_reached)).sum())
    n_later = int((other_reached & (other_step < step + ~reached)).sum())
    counts = (len(step), int(reached.sum()), int(other_reached.sum()))
    medians = (_median(step[reached]), _median(other_step[other_reached]))
    row: Row = dict(zip(_COUNTS, (*counts, *medians, n_sooner, n_later), strict=True))
    if not n_sooner + n_later:
        return row | dict.fromkeys(("ratio", "low", "high"))
    low, high = exact_interval(n_sooner, n_sooner + n_later)
    ratio = None if not n_later else n_sooner / n_later
    return row | {"ratio": ratio, "low": low / (1 - low), "high": None if high == 1 else high / (1 - high)}


def ratio_label(row: Row) -> str:
    """The ratio with its interval: `0.4 [0.2, 0.9]`, `0 [0, 0.1]` or `∞ [8, ∞]`; `-` without informative pairs."""
    if row["low"] is None:
        return "-"
    ratio, low, high = ("∞" if row[name] is None else _digits(row[name]) for name in ("ratio", "low", "high"))
    return f"{ratio} [{low}, {high}]"


def _digits(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 100 else f"{ratio:,.0f}"


def _median(steps: NDArray[np.int64]) -> int | None:
    return int(np.quantile(steps, 0.5, method="inverted_cdf")) if steps.size else None


def _read_pairs(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[_Place, _Place]]]:
    """By intervention: the training with it, and the one without."""
    own, parameters = param_column(INTERVENTION), names_with(connection, "param_")
    if INTERVENTION not in parameters:
        return {}
    others = [param_column(name) for name in parameters if name != INTERVENTION]
    same = " and ".join(f"a.{name} is not distinct from b.{name}" for name in ("workload", "seed", *others))
    rows = connection.execute(
        f"select a.{own}, a.trial, a.replicate, b.trial, b.replicate from trainings a join trainings b on {same}"
        f" where a.{own} is not null and b.{own} is null order by all"
    ).fetchall()
    pairs: dict[str, list[tuple[_Place, _Place]]] = {}
    for intervention, *places in rows:
        pairs.setdefault(intervention, []).append(((places[0], places[1]), (places[2], places[3])))
    return pairs


def _reached(
    connection: duckdb.DuckDBPyConnection, workload: str
) -> Iterator[tuple[str, dict[_Place, tuple[int, bool]]]]:
    """Each goal, with each training's step and whether it had reached the goal by then."""
    judged = connection.execute(
        f"select trial, replicate from trainings where {IS_JUDGED} order by trial, replicate"
    ).fetchall()
    reached = [("solved", judged, outcome_onsets(connection, "solved"))]
    reached += [(event, judged, event_times(connection, event)) for event in names_with(connection, "event_")]
    titles = layer_names_of(workload)
    for history in role_histories(connection):
        what = f"{history.role}, {layer_title(titles, history.layer)}"
        places = list(zip(history.trial.tolist(), history.replicate.tolist(), strict=True))
        reached.append((what, places, OnsetTimes(history.trial, history.step, history.emerged, history.before)))
    for what, places, onsets in reached:
        ends = zip(onsets.step.tolist(), onsets.reached.tolist(), strict=True)
        yield what, dict(zip(places, ends, strict=True))
