"""The process that writes to MLflow for the driver, as `tracking.processes` describes.

It imports neither torch nor Ray.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import chdir, closing, suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any, TextIO

from attnsweep.orchestrator.storage.place_names import place_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tracking.follow import Follower
from attnsweep.orchestrator.tracking.mlflow_store import MlflowStore
from attnsweep.orchestrator.tracking.processes import Ended, State
from attnsweep.orchestrator.tracking.report import problem_drawing
from attnsweep.orchestrator.tracking.store import in_one_line, set_environment
from attnsweep.workloads.errors import UserError


def main() -> None:
    # Ctrl-C and schedulers' signals go to all processes of the process group, so the driver receives them too and
    # decides how this process ends. Here they are ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    # Standard output is redirected to standard error, so that prints of libraries do not mix with the answers to the
    # driver.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    endings: SimpleQueue[bool] = SimpleQueue()
    threading.Thread(target=listen, args=(sys.stdin, requests, endings), name="driver", daemon=True).start()
    set_environment()

    def say(message: State | Ended) -> None:
        print(json.dumps(asdict(message)), file=answers, flush=True)

    while True:
        say(Ended(answer(requests.get(), endings, say)))


def listen(lines: TextIO, requests: "SimpleQueue[dict[str, Any]]", endings: "SimpleQueue[bool]") -> None:
    status = 1
    try:
        for line in lines:
            message = json.loads(line)
            if isinstance(message, bool):
                endings.put(message)
            else:
                requests.put(message)
        status = 0
    finally:
        # The process exits at once, because a normal exit would wait until the whole sweep is logged. If this leaves a
        # trial partly logged, the next run or `attnsweep mlflow-sync` completes it.
        os._exit(status)


def answer(request: dict[str, Any], endings: "SimpleQueue[bool]", say: Callable[[State], None]) -> str | None:
    os.environ.clear()
    os.environ.update(request["variables"])
    set_environment()
    with chdir(request["folder"]):
        if request["work"] == "report":
            return draw_report(**request["given"])
        follow_until_told(endings=endings, say=say, **request["given"])
        return None


def follow_until_told(
    directory: str, uri: str, retry_seconds: float, endings: "SimpleQueue[bool]", say: Callable[[State], None]
) -> None:
    with closing(Follower(place_of(directory), MlflowStore(uri), say, retry_seconds)) as follower:
        while True:
            pause = follower.look(lambda: not endings.empty())
            with suppress(Empty):
                follower.end(in_haste=endings.get(timeout=pause))
                return


def draw_report(directory: str, uri: str | None, keep: bool) -> str | None:
    try:
        return problem_drawing(SweepDirectory.open(place_of(directory)), uri, keep=keep)
    except UserError as error:
        return f"no report: {in_one_line(error)}"
