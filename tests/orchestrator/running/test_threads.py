"""Sweeps outside the main thread, as notebooks and web servers run them."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fault import sweeps


@pytest.mark.scale
@pytest.mark.slow
def test_sweeps_run_in_threads_as_in_the_main_one(tmp_path: Path, no_mlflow: None) -> None:
    spec = sweeps.small_sweep(trials=2)
    before = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor(2) as threads:
        summaries = list(threads.map(lambda name: sweeps.run(spec, tmp_path / name), ("a", "b")))
    sweeps.run(spec, tmp_path / "main")
    assert [summary.finished for summary in summaries] == [True, True]
    assert sweeps.outcomes(tmp_path / "a") == sweeps.outcomes(tmp_path / "b") == sweeps.outcomes(tmp_path / "main")
    assert signal.getsignal(signal.SIGINT) is before
