"""The folder of what attnsweep remembers for a user between sweeps: trusted code, pack sizes, promised prices."""

import getpass
import os
from pathlib import Path


def name_unknown_user() -> None:
    """Gives a user whom the machine does not know, such as a container's bare number, a name and a home.

    MLflow and PyTorch's compiler raise errors without. The name is the number; the home, by Debian's convention, is one
    that nobody can make, so what would be kept there is not kept.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())


def state_folder() -> Path:
    """The folder, which may not exist yet.

    Raises:
        RuntimeError: If the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "attnsweep"
