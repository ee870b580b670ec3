"""Where Ray is: on a cluster that runs already, or started on this machine."""

import os


def cluster_address(address: str | None) -> str | None:
    """The address of the cluster to join, `RAY_ADDRESS` where none is given; `None` to start Ray on this machine."""
    found = (os.environ.get("RAY_ADDRESS") or None) if address is None else address
    return None if found == "local" else found
