"""Stopping on request: the first Ctrl-C or SIGTERM ends the sweep in order, a second one at once."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SECONDS = 5.0
"""Seconds after the signal in which packs are handed back and MLflow may answer. Users are promised 10 s in all; the
rest is for Ray to shut down."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Turns SIGTERM into KeyboardInterrupt, also while Ray starts: `training.cluster` restores the handler it found."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class StopOnSignal:
    """A context in which SIGINT and SIGTERM set `requested` instead of raising; a second signal raises.

    Python delivers signals to the main thread. In any other, as in a web server, `requested` stays false.
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
        """The part of `STOP_SECONDS` that is left after the signal; before a signal, all of it."""
        return STOP_SECONDS if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.requested:
            raise KeyboardInterrupt
        self._deadline = time.monotonic() + STOP_SECONDS
        self.requested = True
