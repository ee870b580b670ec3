"""When roles of attention heads emerge in trainings: read from the ledger's table `heads`, and summarized as curves by
step.

A role has emerged by the first probe at which some head of the layer has it, if some head (perhaps another) still has
it at the next probe, and after the probe before. More probes are not asked for: successive ones may be a factor of two
apart, which would leave no time to confirm a role that emerges late. So whether a role has emerged by a probe does not
depend on how long the training went on, as the estimate by step requires. Without an emergence, a training is censored
at the last probe but one: a later one could not have been confirmed.

Left out are trainings without heads, and failed, diverged and pruned ones: heads with non-finite weights have no role,
and the roles that heads of a pruned training would have had are unknown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.analysis.labels import check_known
from attnsweep.orchestrator.analysis.onset_times import NUMBERS, OnsetTimes, onset_table
from attnsweep.orchestrator.analysis.rates.bins import read_groups
from attnsweep.orchestrator.analysis.rates.intervals import (
    RATE_COLUMNS,
    pooling,
    trials_count_once,
    weights_of_trainings,
)
from attnsweep.orchestrator.analysis.tables import Row, table_of
from attnsweep.orchestrator.ledger.views import names_with
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.vocabulary import NO_ROLE, ROLES

_SCORES = {name: role.score for name, role in ROLES.items() if role.score is not None}

_ANY_LAYER = -1
_ROLE_AND_LAYER = {"role": str, "layer": pa.int32(), "layer_name": str}
_NO_ONSET = dict.fromkeys(("median_before", "median_step")) | {"n_trainings": 0, "n_came": 0, "curve": []}

_JUDGED = """
judged as (select trial, replicate, n_steps from trainings
    where outcome not in ('failed', 'diverged', 'pruned')),
chosen as (select trial, replicate, {layer} as layer, step, role{scores} from heads semi join judged
    using (trial, replicate))
"""

# A stretch is a probe and the next one: a role emerges at the first where both have it (`fewest_with`).
_HISTORIES = """
with {judged},
cells as (select unnest(?) as cell, unnest(?) as layer, unnest(?) as role),
probes as (select trial, replicate, layer, step, count(*) as n_heads from chosen group by all),
held as (
    select trial, replicate, layer, step, role, count(*) as n_with from chosen where role <> '{none}' group by all
),
stretches as (
    select *, count(*) over stretch as n_probes, min(n_with) over stretch as fewest_with,
        lag(step, 1, -1) over (partition by cell, trial, replicate order by step) as step_before
    from (
        select cell, trial, replicate, step, n_heads, coalesce(n_with, 0) as n_with
        from cells join probes using (layer) left join held using (trial, replicate, layer, step, role)
    )
    window stretch as (
        partition by cell, trial, replicate order by step rows between current row and 1 following
    )
),
histories as (
    select cell, trial, replicate, arg_max(n_heads, step) as n_heads, arg_max(n_with, step) as n_with,
        min(step) filter (n_probes = 2 and fewest_with > 0) as emerged_at,
        arg_min(step_before, step) filter (n_probes = 2 and fewest_with > 0) as before,
        coalesce(max(step) filter (n_probes = 2), -1) as last_confirmable
    from stretches group by all
)
select cell, trial, replicate, emerged_at is not null as emerged, n_heads, n_with, n_steps,
    coalesce(emerged_at, last_confirmable) as step, coalesce(before, -1) as before
from histories join judged using (trial, replicate) order by cell, trial, replicate
"""


@dataclass(frozen=True, eq=False, slots=True)
class RoleHistory:
    """When a role emerged in one layer, for each of R trainings.

    Attributes:
        layer: `None` for any layer.
        step: (R,) of the probe at which the role emerged. If it did not, of the last probe at which an emergence could
            have been confirmed, where the training is censored; -1 if there is none.
        before: (R,) if the role emerged, the step of the probe before `step`; -1 if there is none.
        n_steps: (R,) steps taken.
        n_heads, n_with: (R,) heads of the layer, and those with the role, at the last probe.
    """

    layer: int | None
    role: str
    trial: NDArray[np.int64]
    replicate: NDArray[np.int64]
    emerged: NDArray[np.bool_]
    step: NDArray[np.int64]
    before: NDArray[np.int64]
    n_steps: NDArray[np.int64]
    n_heads: NDArray[np.int64]
    n_with: NDArray[np.int64]

    @property
    def is_followed(self) -> NDArray[np.bool_]:
        """Whether each training had two probes, which an emergence takes."""
        return self.step >= 0

    @property
    def onsets(self) -> OnsetTimes:
        return OnsetTimes(self.trial, self.step, self.emerged, self.before).at(self.is_followed)

    def counts(self) -> dict[int, tuple[int, int]]:
        """For each trial its trainings, and those in which some head has the role at the last probe."""
        trials, trial_R = np.unique(self.trial, return_inverse=True)
        n, k = np.bincount(trial_R), np.bincount(trial_R, self.n_with > 0).astype(int)
        return dict(zip(trials.tolist(), zip(n.tolist(), k.tolist(), strict=True), strict=True))


def role_histories(connection: duckdb.DuckDBPyConnection, *, any_layer: bool = False) -> tuple[RoleHistory, ...]:
    """One for each role and layer where some head ever has the role, or its score is measured. A role without a score
    has a history in all layers if it occurs in one. With `any_layer` the layers are one."""
    layer = str(_ANY_LAYER) if any_layer else "layer"
    cells = _cells(connection, layer)
    numbers = list(range(len(cells)))
    judged = _JUDGED.format(layer=layer, scores="")
    rows = connection.execute(
        _HISTORIES.format(judged=judged, none=NO_ROLE),
        [numbers, [layer_number for layer_number, _ in cells], [role for _, role in cells]],
    ).fetchnumpy()
    edges = np.searchsorted(rows["cell"], [*numbers, len(cells)])
    columns: dict[str, NDArray[Any]] = {
        name: np.asarray(column, np.bool_ if name == "emerged" else np.int64)
        for name, column in rows.items()
        if name != "cell"
    }
    return tuple(
        RoleHistory(
            layer=None if layer_number == _ANY_LAYER else layer_number,
            role=role,
            **{name: column[edges[cell] : edges[cell + 1]] for name, column in columns.items()},
        )
        for cell, (layer_number, role) in enumerate(cells)
    )


def _cells(connection: duckdb.DuckDBPyConnection, layer: str) -> list[tuple[int, str]]:
    """The layer and the role of each history."""
    known = names_with(connection, "score_", "heads")
    scores = {role: f"score_{score}" for role, score in _SCORES.items() if score in known}
    judged = _JUDGED.format(layer=layer, scores="".join(f", {score}" for score in scores.values()))
    measured = "".join(f", count({score}) > 0" for score in scores.values())
    rows = connection.execute(
        f"with {judged} select layer, list(distinct role){measured} from chosen group by layer order by layer"
    ).fetchall()
    seen = {role for _, roles, *_ in rows for role in roles} - {NO_ROLE}
    order = [*_SCORES, *sorted(seen - set(_SCORES))]
    cells = []
    for layer_number, roles, *is_measured in rows:
        is_scored = dict(zip(scores, is_measured, strict=True))
        cells += [(layer_number, role) for role in order if role in roles or is_scored.get(role, role in seen)]
    return cells


def layer_title(names: Sequence[str], layer: int | None) -> str:
    """`encoder self`, `layer 0`, `any layer`."""
    if layer is None:
        return "any layer"
    return names[layer].replace("_", " ") if layer < len(names) else f"layer {layer}"


def layer_names_of(workload: str) -> tuple[str, ...]:
    """Empty if the workload has no heads, or is not installed.

    A workload that a sweep directory names by its file is not loaded: reading a sweep runs none of its code.
    """
    # Imported here, because the registry imports PyTorch.
    from attnsweep.workloads.lenses import lenses_of
    from attnsweep.workloads.registry import load_workload, registered_names

    return lenses_of(load_workload(workload)).layer_names if workload in registered_names() else ()


LAYER = "layer"


def read_emergence(
    connection: duckdb.DuckDBPyConnection, specs: Sequence[Sweep], role: str, names: Sequence[str], layer: int | None
) -> pa.Table:
    """For each group of trials by `names`, which may contain `layer`."""
    histories = role_histories(connection, any_layer=layer is None and LAYER not in names)
    inside = [history for history in histories if layer in (None, history.layer)]
    roles = sorted({history.role for history in inside})
    check_known("role", role, roles, "a workload with attention heads", "see docs/heads.md")
    groups = read_groups(connection, specs, [name for name in names if name != LAYER])
    titles, parts, rows = layer_names_of(specs[0].workload), [], []
    for number, history in enumerate(each for each in inside if each.role == role):
        parts.append(history.onsets)
        for trial in history.onsets.trial.tolist():
            label = groups.label(groups.places[trial]) | {LAYER: layer_title(titles, history.layer)}
            place = dict(zip(groups.names, groups.places[trial], strict=True)) | {LAYER: number}
            rows.append((tuple(place[name] for name in names), tuple(label[name] for name in names)))
    times = OnsetTimes(*(np.concatenate([getattr(part, name) for part in parts]) for name in OnsetTimes.__slots__))
    order = sorted(range(len(rows)), key=lambda row: rows[row][0])
    return onset_table(
        times.at(np.array(order, np.int64)), names, [rows[row][1] for row in order], trials_count_once(*specs)
    )


def role_rates(
    connection: duckdb.DuckDBPyConnection, spec: Sweep, histories: Sequence[RoleHistory] | None = None
) -> pa.Table:
    """One row per role and layer: in which share of the trainings some head of the layer has the role at the end, which
    share of its heads have it, and when it emerges (as in `onset_table`).

    `median_share` is `median_step` as a part of the steps that the trainings took; null if they took different numbers.
    """
    histories = role_histories(connection) if histories is None else histories
    pool, once_per_trial, rows = pooling(spec), trials_count_once(spec), []
    titles = layer_names_of(spec.workload) if histories else ()
    for history in histories:
        weight, onsets = weights_of_trainings(history.trial, once_per_trial=once_per_trial), history.onsets
        [onset] = onset_table(onsets, (), [()] * len(onsets.trial), once_per_trial).to_pylist() or [_NO_ONSET]
        step, lengths = onset["median_step"], np.unique(history.n_steps[history.is_followed])
        rows.append(
            {"role": history.role, "layer": history.layer, "layer_name": layer_title(titles, history.layer)}
            | pool([*history.counts().values()]).columns()
            | {"head_share": float((weight * history.n_with).sum() / (weight * history.n_heads).sum())}
            | {"n_followed": onset["n_trainings"], "n_emerged": onset["n_came"]}
            | {"median_before": onset["median_before"], "median_step": step, "curve": onset["curve"]}
            | {"median_share": step / max(int(lengths[0]), 1) if step is not None and len(lengths) == 1 else None}
        )
    seen = list(dict.fromkeys(row["role"] for row in rows))
    columns = {**_ROLE_AND_LAYER, **RATE_COLUMNS, "head_share": float, "n_followed": int, "n_emerged": int}
    columns |= {"median_before": int, "median_step": int, "median_share": float, "curve": NUMBERS["curve"]}
    return table_of(columns, sorted(rows, key=lambda row: seen.index(row["role"])))


def step_label(role: Row) -> str:
    """`1,000 to 2,000 (25%)`: the probes between which a role emerges, in the median; `-` if it never does."""
    if role["median_step"] is None:
        return "-"
    through = "" if role["median_share"] is None else f" ({role['median_share']:.0%})"
    after = "" if role["median_before"] is None else f"{role['median_before']:,} to "
    return f"{after}{role['median_step']:,}{through}"
