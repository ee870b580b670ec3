"""Ports for the servers that tests start."""

import random
import socket

_RESERVED_FOR_SERVERS = range(20_000, 32_768)
"""Above Ray's ports of workers (up to 19,999) and below those that Linux gives to outgoing connections."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that are free now.

    The system's own choice (port 0) may be given to any connection of another test before the server binds it.
    """
    candidates = random.SystemRandom().sample(_RESERVED_FOR_SERVERS, len(_RESERVED_FOR_SERVERS))
    free = (port for port in candidates if _is_free(port))
    return [next(free) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def accepts_connections(port: int) -> bool:
    """Whether a server of this machine listens at the port."""
    with socket.socket() as attempt:
        attempt.settimeout(5)
        return attempt.connect_ex(("127.0.0.1", port)) == 0
