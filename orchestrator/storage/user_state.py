"""The folder of what attnsweep remembers for a user between sweeps: trusted code, pack sizes, promised prices."""

import os
from pathlib import Path


def state_folder() -> Path:
    """The folder, which may not exist yet.

    Raises:
        RuntimeError: If the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "attnsweep"
