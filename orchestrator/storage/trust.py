"""Which users' code this user trusts: what they have run from their own files, and what they have trusted since.

A list of digests in the user's own state folder, since nothing in a sweep directory can say whose it is: a copy belongs
to whoever copied it, and an object store knows no user.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from attnsweep.orchestrator.storage.user_state import state_folder

_trusted_here: set[str] = set()
"""What this process trusts: the list cannot be written where there is no home."""


def trust(code: Mapping[str, str], say: Callable[[str], object]) -> None:
    """Trusts some code from now on.

    Args:
        code: The sha256 of each file, by its name.
        say: Called with a line if only this process will know of it.
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
        say(f"it cannot be noted that you trust this sweep's code ({reason}): later commands on it need --trust")


def is_trusted(code: Mapping[str, str]) -> bool:
    """Whether this user trusts exactly these files."""
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
    """The list. Raises RuntimeError where the user has no home."""
    return state_folder() / "trusted-code"
