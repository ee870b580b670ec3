"""Which users' code this user trusts: what they have run from their own files, and what they have trusted since.

A list of digests in the user's own state folder, since nothing in a sweep directory can say whose it is: a copy belongs
to whoever copied it, and an object store knows no user.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from attnsweep.orchestrator.storage.user_state import state_folder

_trusted_here: set[str] = set()
"""What this process trusts: the list cannot be written where there is no home."""


def trust(code: Mapping[str, str]) -> None:
    """Trusts some code from now on.

    Args:
        code: The sha256 of each file, by its name.
    """
    digest = _digest(code)
    if is_trusted(code):
        return
    _trusted_here.add(digest)
    with suppress(OSError, RuntimeError):
        _list().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _list().open("a") as file:
            file.write(f"{digest}\n")


def is_trusted(code: Mapping[str, str]) -> bool:
    """Whether this user trusts exactly these files."""
    digest = _digest(code)
    if digest in _trusted_here:
        return True
    try:
        return digest in _list().read_text().split()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False


def _digest(code: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(code), sort_keys=True).encode()).hexdigest()


def _list() -> Path:
    """The list. Raises RuntimeError where the user has no home."""
    return state_folder() / "trusted-code"
