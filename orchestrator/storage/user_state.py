"""The folder in which attnsweep stores data of a user between sweeps: trusted code, pack sizes, forecast costs."""

import getpass
import os
from pathlib import Path


def name_unknown_user() -> None:
    """Gives a name and a home to a user who is unknown to the machine, such as a bare user id in a container.

    MLflow and PyTorch's compiler raise errors without them. The name is the id; the home is, by Debian's convention, a
    folder that nobody can make, so nothing is stored there.
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
    """Returns the folder for attnsweep's data of this user. It may not exist yet.

    Raises:
        RuntimeError: If the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "attnsweep"
