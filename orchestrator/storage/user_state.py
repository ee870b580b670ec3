"""A user whom the machine does not know, as with a bare user id in a container."""

import getpass
import os
from pathlib import Path


def name_unknown_user() -> None:
    """Sets a name and a home in the environment if the machine does not know the user.

    MLflow and PyTorch's compiler raise errors without them. The name is the user id. The home is, as usual in Debian, a
    folder that does not exist and that nobody can make, so nothing is stored there.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())
