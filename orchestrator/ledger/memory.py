"""What the C library does with memory that is freed."""

import ctypes

_M_ARENA_MAX = -8
"""A constant of glibc's malloc.h."""


def share_freed_memory() -> None:
    """Lets all threads of this process that start later take memory from one pool. For glibc; others stay as they are.

    By default each thread gets a pool of its own, and keeps in it what it has freed: in Arrow's threads tens of MiB
    after the first merge of fragments.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)
