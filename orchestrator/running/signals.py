"""Stops a sweep: the first Ctrl-C, SIGTERM or scheduler's signal ends it in order, a second one at once."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SECONDS = 5.0
"""For handing back packs and for MLflow; the rest of the documented 10 s is for Ray to shut down."""
_NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What schedulers send before they take a machine away, and terminals that close. By default they kill a process."""


def _unhandled() -> list[signal.Signals]:
    # A SIGHUP that `nohup` ignores stays ignored, and a handler of the user's program stays.
    return [number for number in _NOTICES if signal.getsignal(number) in (signal.SIG_DFL, _interrupt)]


@contextmanager
def signals_as_ctrl_c() -> Iterator[None]:
    """SIGTERM and schedulers' signals raise KeyboardInterrupt, as Ctrl-C does. An exception that leaves the context
    after a signal becomes one too, because DuckDB, Arrow and interrupted imports raise errors of their own."""
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, *_unhandled())}
    # A SIGINT that is ignored, as in the background of a script, stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except Exception:
        refuse_if_interrupted()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _interrupted.clear()


def refuse_if_interrupted() -> None:
    """Called by code that catches all errors, which a signal may have caused."""
    if _interrupted.is_set():
        raise KeyboardInterrupt


_interrupted = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    _interrupted.set()
    raise KeyboardInterrupt


class StopOnSignal:
    """A first signal only sets `requested`, a second one raises KeyboardInterrupt. Only in the main thread."""

    def __init__(self) -> None:
        self.requested = False
        self._deadline: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGINT, signal.SIGTERM, *_unhandled()) if is_main else ():
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def seconds_left(self) -> float:
        """All `STOP_SECONDS` until a first signal arrives."""
        return STOP_SECONDS if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self._deadline = time.monotonic() + STOP_SECONDS
        self.requested = True
