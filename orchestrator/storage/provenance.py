"""Where and how a sweep was started, and the name that distinguishes it from others."""

import getpass
import os
import platform
import secrets
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

from attnsweep.orchestrator.storage.credentials import without_credentials
from attnsweep.orchestrator.storage.environment import versions


def new_identity(name: str) -> str:
    """Returns a new readable name for a sweep. The random end distinguishes sweeps that start in the same second."""
    return f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def current_provenance() -> dict[str, Any]:
    """Returns this process's command, user, machine and versions of libraries."""
    command = shlex.join(without_credentials(word) for word in sys.argv)
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Paths in the command may not be UTF-8, but the record must be UTF-8.
        "command": command.encode(errors="backslashreplace").decode(),
        "user": getpass.getuser(),
        "host": platform.node(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "git_commit": _git_commit(),
        "versions": versions(),
    }


def _git_commit() -> str | None:
    try:
        process = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None
