"""A user whom the machine does not know, such as a bare user id in a container."""

import getpass
import os
from pathlib import Path


def name_unknown_user() -> None:
    """Sets a name and a home in the environment, without which MLflow and PyTorch's compiler raise errors. The home is
    Debian's for such users: a folder that nobody can make."""
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = "/nonexistent"
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = str(os.getuid())
