"""A saved view of MLflow's table of runs, with the columns in which the trials of a sweep differ."""

import base64
import json
import zlib

from attnsweep.search_spaces.sweep import Sweep

_TAG = "mlflow.sharedViewState."
METRICS = ("stuck_rate", "solved_rate", "loss_median")
"""The metrics shown. They are few, because parameters follow them and a laptop's screen fits seven columns."""


def view_id(spec: Sweep) -> str:
    """The view's name in an address: `?viewStateShareKey=...`."""
    return f"attnsweep.{spec.name}"


def view_of_trials(spec: Sweep, created: int) -> tuple[str, str]:
    """Key and value of the experiment's tag in which MLflow stores a saved view.

    There is one view per sweep name, because MLflow's page holds at most 40. It lists all sweeps of that name, the
    newest first.

    Args:
        spec: The sweep.
        created: When the sweep was created, milliseconds since the epoch.
    """
    swept = [name for name in spec.space if name not in spec.fixed()]
    columns = [f"metrics.`{name}`" for name in METRICS] + [f"params.`{name}`" for name in swept]
    state = {
        "searchFilter": f"tags.`attnsweep.name` = '{spec.name}'",
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "selectedColumns": columns,
    }
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": f"{spec.name}: trials", "createdAt": created, "updatedAt": created, "state": f"deflate;{packed}"}
    return f"{_TAG}{view_id(spec)}", json.dumps(view)
