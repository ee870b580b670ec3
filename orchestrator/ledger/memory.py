"""Keeps the C library from holding on to memory that was freed."""

import ctypes

_M_ARENA_MAX = -8
"""A constant of glibc's malloc.h."""


def share_freed_memory() -> None:
    """Makes threads that start later in this process share one memory pool. Has no effect without glibc.

    By default each thread has its own pool, which keeps memory that was freed: Arrow's threads keep tens of MiB after
    the first merge of fragments.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)
