"""Runs the parts of a measurement one after the other, each in a process of its own with a time limit.

What a part finds is appended to a file at once, one JSON object a line: a part that crashes, hangs or is cut off loses
nothing that it had found, and no other part. Processes are forked, so that none imports PyTorch again; this one must
not touch a GPU before.
"""

import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

Findings = Iterator[tuple[str, Mapping[str, Any]]]
"""Names and what was found."""
END = "end"
"""The name under which a part's own end stands."""
_LEAST_SECONDS = 5.0
_SHARE_BEFORE_KILL = 0.9


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        measure: Takes the time of the monotonic clock by which it should end, and yields what it finds.
        seconds: After which it is killed.
    """

    name: str
    measure: Callable[[float], Findings]
    seconds: float


def run_parts(parts: Iterable[Part], lines: Path, seconds: float) -> list[dict[str, Any]]:
    """What all parts found within so many seconds, as the file holds it.

    Args:
        parts: The most valuable one first.
        lines: The file; what it holds is kept.
        seconds: For all of them.
    """
    before = lines.stat().st_size if lines.exists() else 0
    until = time.monotonic() + seconds
    for part in parts:
        began = time.monotonic()
        left = min(part.seconds, until - began)
        end = "left out: the time was up" if left < min(part.seconds, _LEAST_SECONDS) else _run(part, lines, left)
        _append(lines, part.name, END, {"seconds": round(time.monotonic() - began, 1), "end": end})
    with lines.open() as file:
        file.seek(before)
        return [json.loads(line) for line in file if line.endswith("\n")]


def _run(part: Part, lines: Path, seconds: float) -> str:
    """Runs a part in a process of its own; returns how it ended."""
    until = time.monotonic() + _SHARE_BEFORE_KILL * seconds
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(part, lines, until))
    process.start()
    try:
        process.join(seconds)
    finally:
        is_late = _end(process)
    if is_late:
        return f"stopped after {seconds:.0f} s"
    return "ended" if process.exitcode == 0 else f"failed: exit code {process.exitcode}"


def _end(process: BaseProcess) -> bool:
    """Ends the process if it still runs, with all that it started; returns whether it did."""
    is_late = process.is_alive()
    with suppress(ProcessLookupError):
        # It leads a group of its own.
        os.killpg(process.ident or 0, signal.SIGKILL)
    process.kill()
    process.join()
    return is_late


def _measure(part: Part, lines: Path, until: float) -> None:
    os.setsid()
    began = time.monotonic()
    try:
        for name, found in part.measure(until):
            _append(lines, part.name, name, {**found, "at": round(time.monotonic() - began, 1)})
    except Exception as error:  # noqa: BLE001 - a device fails in ways that no list holds
        _append(lines, part.name, "failed", {"error": f"{type(error).__name__}: {error}"[:500]})
        traceback.print_exc()
        sys.exit(1)


def _append(lines: Path, part: str, name: str, found: Mapping[str, Any]) -> None:
    text = json.dumps({"part": part, "name": name, "found": found})
    with lines.open("a") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    print(text, file=sys.stderr, flush=True)
