"""When trainings reach an outcome, a role or an event ("the goal"), for each group of trials."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa

from attnsweep.orchestrator.analysis.onset_times import OnsetTimes
from attnsweep.orchestrator.analysis.rates.bins import Groups
from attnsweep.orchestrator.analysis.tables import table_of

_POINT = pa.struct([("step", pa.int64()), *((name, pa.float64()) for name in ("share", "most", "low", "high"))])
NUMBERS = {
    **dict.fromkeys(("n_trials", "n_trainings", "n_came", "median_before", "median_step"), int),
    **dict.fromkeys(("half_before", "half_step", "low", "high"), int),
    "curve": pa.list_(_POINT),
}
"""`n_came` of `n_trainings` reached the goal. Half of those did after `median_before`, by `median_step`; half of all
after `half_before`, by `half_step`, and with 95% confidence after `low`, by `high`. `curve`: `CurvePoint` by step."""


def onset_table(times: OnsetTimes, names: Sequence[str], labels: Sequence[tuple[str, ...]], once: bool) -> pa.Table:
    """One row for each group of trainings with the same labels, in the order in which these come.

    Args:
        labels: Of each training, one for each name.
        once: Whether each trial counts once.
    """
    order = dict.fromkeys(labels)
    number = {label: at for at, label in enumerate(order)}
    group = np.array([number[label] for label in labels], np.int64)
    rows = []
    for label, at in number.items():
        inside = times.at(group == at)
        half = inside.half(once_per_trial=once)
        rows.append(
            dict(zip(names, label, strict=True))
            | {"n_trials": len(np.unique(inside.trial)), "n_trainings": len(inside.step), "n_came": inside.n_came}
            | {"median_before": inside.median_before, "median_step": inside.median_step}
            | {"half_before": half.before, "half_step": half.step, "low": half.low, "high": half.high}
            | {"curve": [asdict(point) for point in inside.curve(once_per_trial=once)]}
        )
    return table_of({**dict.fromkeys(names, str), **NUMBERS}, rows)


def onset_by(times: OnsetTimes, groups: Groups, once: bool) -> pa.Table:
    """As `onset_table`, for groups of trials, in the order of their bins."""
    places = [groups.places[trial] for trial in times.trial.tolist()]
    order = sorted(range(len(places)), key=places.__getitem__)
    labels = [tuple(groups.label(places[at]).values()) for at in order]
    return onset_table(times.at(np.array(order, np.int64)), groups.names, labels, once)
