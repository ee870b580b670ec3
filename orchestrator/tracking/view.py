"""A saved view of a sweep's trials in MLflow: a table whose columns are those in which the trials differ, and charts.

MLflow does not store in a saved view which runs are unfolded, and nests runs only if they are sorted by time. The view
therefore sorts by kind: the runs of sweeps come first, and below them all their trials.
"""

import base64
import json
import zlib
from typing import Any

from attnsweep.search_spaces.dimensions import Float, Int, Varied
from attnsweep.search_spaces.sweep import Sweep

_TAG = "mlflow.sharedViewState."
METRICS = ("stuck_rate", "solved_rate", "loss_median")
"""The metrics in the table. They are few, because parameters follow and a laptop's screen fits seven columns."""
_SECTION = "attnsweep"
_MOST_RUNS = 100
"""The number of runs in a chart, which is the number that MLflow's page loads at first."""
_MOST_AXES = 8


def view_id(spec: Sweep) -> str:
    """URLs contain it after `?viewStateShareKey=`."""
    return f"attnsweep.{spec.name}"


def links(spec: Sweep, experiment: str) -> str:
    """Markdown, for MLflow's other pages."""
    page = f"#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={view_id(spec)}"
    return f"[Table of all trials]({page}), [charts of them]({page}&compareRunsMode=CHART)."


def view_of_trials(spec: Sweep, created: int) -> tuple[str, str]:
    """The experiment tag in which MLflow stores the view, key and value. `created`: milliseconds since the epoch."""
    swept = [name for name in spec.parameters() if name not in spec.fixed()]
    columns = [f"metrics.`{name}`" for name in METRICS] + [f"params.`{name}`" for name in swept]
    state = {
        "searchFilter": f"tags.`attnsweep.name` = '{spec.name}'",
        "orderByKey": "tags.`attnsweep.kind`",
        "orderByAsc": True,
        "selectedColumns": columns,
        "runsHiddenMode": "SHOW_ALL",
        "compareRunSections": [{"uuid": _SECTION, "name": _SECTION, "display": True, "isReordered": False}],
        "compareRunCharts": _charts(swept, spec.varied()),
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": f"{spec.name}: trials", "createdAt": created, "updatedAt": created, "state": f"deflate;{packed}"}
    return f"{_TAG}{view_id(spec)}", json.dumps(view)


def _charts(swept: list[str], varied: dict[str, Varied]) -> list[dict[str, Any]]:
    rate = {"key": "stuck_rate", "type": "METRIC"}
    axes = [{"key": name, "type": "PARAM"} for name in swept[:2]]
    charts: list[dict[str, Any]] = []
    if len(axes) == 2 and all(isinstance(varied.get(name), Float | Int) for name in swept[:2]):
        charts.append({"type": "CONTOUR", "xaxis": axes[0], "yaxis": axes[1], "zaxis": rate})
    charts += [{"type": "SCATTER", "xaxis": axis, "yaxis": rate} for axis in axes]
    charts.append(
        {
            "type": "LINE",
            "metricKey": "loss_curve/median",
            "lineSmoothness": 0,
            "xAxisKey": "step",
            "xAxisScaleType": "linear",
            "scaleType": "log",
            "yAxisKey": "metric",
            "yAxisExpressions": [],
            "range": {},
            "useGlobalXaxisKey": True,
        }
    )
    if swept:
        charts.append({"type": "PARALLEL", "selectedParams": swept[:_MOST_AXES], "selectedMetrics": [rate["key"]]})
    common = {"metricSectionId": _SECTION, "runsCountToCompare": _MOST_RUNS, "deleted": False, "isGenerated": False}
    return [{"uuid": f"{_SECTION}-{index}", **common, **chart} for index, chart in enumerate(charts)]
