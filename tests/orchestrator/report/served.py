"""A report's server in a thread of the tests' own process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from attnsweep.orchestrator.report.serving import serve_report
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import folder_of


@contextmanager
def served(directory: SweepDirectory) -> Iterator[str]:
    """Serves a sweep's report, and yields its URL; the server ends when its directory cannot be read any more."""
    urls: list[str] = []
    is_up = threading.Event()

    def told(url: str) -> None:
        urls.append(url)
        is_up.set()

    def serve() -> None:
        with pytest.raises(UserError, match="expected a sweep directory"):
            serve_report([directory.place], 0, told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnsweep.orchestrator.report.serving._LOOK_SECONDS", 0.02)
        thread = threading.Thread(target=serve)
        thread.start()
        assert is_up.wait(60)
        yield urls[0]
        (folder_of(directory) / "sweep.json").unlink()
        thread.join(60)
        assert not thread.is_alive()
