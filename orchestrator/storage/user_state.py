"""The folder in the user's home in which attnsweep keeps data between sweeps: which code is trusted, pack sizes, and
predicted costs.

The digests of the code that the user trusts are stored there and not in the sweep directory, because the owner of a
directory may be someone else than the author of its code: a copy belongs to the person who copied it, and objects in a
store have no owners.
"""

import getpass
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path


def name_unknown_user() -> None:
    """Sets a name and a home in the environment of this process if the machine does not know the user, as with a bare
    user id in a container.

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


def state_folder() -> Path:
    """Returns the folder for attnsweep's data of this user. The folder may not exist yet.

    Raises:
        RuntimeError: If the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return folder / "attnsweep"


_trusted_here: set[str] = set()
"""Digests of code that only this process trusts, because a user without a home has no folder to store them."""


def trust(code: Mapping[str, str], say: Callable[[str], object]) -> None:
    """Records that this user trusts the given files of code.

    Args:
        code: The sha256 of each file, by the file's name.
        say: Is called with a line of text if the trust cannot be stored, so that only this process trusts the files.
    """
    digest = _digest(code)
    if is_trusted(code):
        return
    _trusted_here.add(digest)
    try:
        _list().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _list().open("a") as file:
            file.write(f"{digest}\n")
    except (OSError, RuntimeError) as error:
        reason = f"{_list()}: {error.strerror}" if isinstance(error, OSError) else str(error)
        say(f"your trust in this sweep's code cannot be stored ({reason}): later commands on the sweep need --trust")


def is_trusted(code: Mapping[str, str]) -> bool:
    """Returns whether this user trusts exactly the given files of code."""
    digest = _digest(code)
    if digest in _trusted_here:
        return True
    try:
        return digest in _list().read_text(errors="replace").split()
    except (OSError, RuntimeError):
        return False


def _digest(code: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(code), sort_keys=True).encode()).hexdigest()


def _list() -> Path:
    return state_folder() / "trusted-code"
