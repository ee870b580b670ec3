"""Stops a sweep on request: the first Ctrl-C or SIGTERM ends it in order, a second one at once."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SECONDS = 5.0
"""Seconds after the signal in which packs are handed back and MLflow may answer. The documented limit is 10 s; the rest
is for Ray to shut down."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM raises KeyboardInterrupt, as Ctrl-C does.

    This also holds while Ray starts: Ray replaces the signal's handler, but `training.cluster` restores it. After a
    Ctrl-C or SIGTERM, any exception that leaves the context becomes a KeyboardInterrupt, because DuckDB, Arrow and
    interrupted imports raise errors of their own instead.
    """
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt)}
    # A SIGINT that is ignored, for example under `nohup`, stays ignored.
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
    """Raises KeyboardInterrupt if Ctrl-C or SIGTERM has arrived within the context `sigterm_as_ctrl_c`.

    Code that catches all errors calls this function, because Ctrl-C may have caused the error.

    Raises:
        KeyboardInterrupt: If Ctrl-C or SIGTERM has arrived.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


_interrupted = threading.Event()


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    _interrupted.set()
    raise KeyboardInterrupt


class StopOnSignal:
    """A context in which a first SIGINT or SIGTERM only sets `requested`. A second one raises KeyboardInterrupt.

    Python delivers signals to the main thread. In any other thread, as in a web server, `requested` stays false.
    """

    def __init__(self) -> None:
        self.requested = False
        self._deadline: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        for number in _SIGNALS if is_main else ():
            self._before[number] = signal.signal(number, self._stop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def seconds_left(self) -> float:
        """The seconds that remain for ending the sweep: all `STOP_SECONDS` until a first signal arrives, fewer after
        it."""
        return STOP_SECONDS if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self._deadline = time.monotonic() + STOP_SECONDS
        self.requested = True
