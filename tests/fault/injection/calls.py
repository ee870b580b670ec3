"""Controls `failing_calls.c`: which call about a file fails next, and which calls there were."""

import ctypes
import errno
import mmap
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KINDS = (
    *("open", "read", "write", "fsync", "close", "rename", "unlink"),
    *("mkdir", "truncate", "link", "lock", "stat", "mmap", "list"),
)
"""In the order of the enum in C."""
_N_CALLS, _N_PATH, _PATH_MAX = 65536, 248, 4096
NEVER = -1

OF_A_BAD_DISK = dict.fromkeys(KINDS, errno.EIO) | {"lock": errno.ENOLCK, "mmap": errno.ENOMEM}
OF_LIMITS = dict.fromkeys(KINDS, errno.EACCES) | {
    **dict.fromkeys(("write", "mkdir", "rename", "link", "truncate", "close"), errno.ENOSPC),
    "open": errno.EMFILE,
    "lock": errno.EINTR,
}
OF_RIGHTS = dict.fromkeys(KINDS, errno.EACCES)


class _Call(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("error", ctypes.c_int), ("path", ctypes.c_char * _N_PATH))


class _State(ctypes.Structure):
    _fields_ = (
        ("errors", ctypes.c_int * 16),
        ("first", ctypes.c_long),
        ("last", ctypes.c_long),
        ("n_calls", ctypes.c_long),
        ("below", ctypes.c_char * _PATH_MAX),
        ("calls", _Call * _N_CALLS),
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the C library about a file of the folder.

    Attributes:
        kind: One of `KINDS`.
        path: Of the file, below the folder.
        error: The errno that it was made to fail with; 0 if it was passed on.
    """

    kind: str
    path: str
    error: int


class Calls:
    """The shared state of the preloaded library.

    Args:
        file: The file that the environment variable FAILING_CALLS_STATE names.
    """

    def __init__(self, file: Path) -> None:
        if not file.exists():
            with file.open("wb") as new:
                new.truncate(ctypes.sizeof(_State))
        with file.open("r+b") as opened:
            self._state = _State.from_buffer(mmap.mmap(opened.fileno(), ctypes.sizeof(_State)))

    @contextmanager
    def failing(self, below: Path, number: int, errors: Mapping[str, int], last: int | None = None) -> Iterator[None]:
        """Within it calls about the folder's files are counted from 0, and this one fails, or all up to `last`."""
        state = self._state
        state.errors = tuple(errors[kind] for kind in KINDS)
        state.first, state.last, state.n_calls = number, number if last is None else last, 0
        state.below = str(below).encode()
        try:
            yield
        finally:
            state.below = b""

    def made(self) -> list[Call]:
        """The calls that were made within the last `failing`."""
        found = self._state.calls[: min(self._state.n_calls, _N_CALLS)]
        return [Call(KINDS[each.kind], each.path.decode(errors="replace"), each.error) for each in found]


def compiled(compiler: str, folder: Path) -> Path:
    """The library, compiled into a folder."""
    library = folder / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True
    )
    return library
