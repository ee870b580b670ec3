"""A view of MLflow's table of runs: the columns that tell the trials of a sweep apart."""

import base64
import json
import zlib

from search_spaces.sweep import Sweep

_TAG = "mlflow.sharedViewState."
METRICS = ("stuck_rate", "solved_rate", "loss_median")
"""Of trials and of the sweep itself. Few: parameters come after them, and a laptop shows seven columns in all."""


def view_id(spec: Sweep) -> str:
    """What the view is called in an address: `?viewStateShareKey=...`."""
    return f"attnsweep.{spec.name}"


def view_of_trials(spec: Sweep, created: int) -> tuple[str, str]:
    """Key and value of the experiment's tag by which MLflow's page knows a view that was saved in it.

    One per name of a sweep: the page holds 40 at most. All sweeps of that name are in it, the newest first.

    Args:
        spec: The sweep.
        created: When it was, milliseconds since the epoch.
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
