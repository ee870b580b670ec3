"""The study of forks at a small size."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.studies import fork_decided

pytestmark = pytest.mark.usefixtures("no_mlflow")

QUIET = Console(file=io.StringIO())


@pytest.mark.slow
def test_the_shares_that_are_decided_are_tabled_and_drawn(tmp_path: Path) -> None:
    induction, kicked = (
        replace(case, replicates=3, steps=(0, 4), n=3, values={**case.values, "n_steps": 8})
        for case in (fork_decided.CASES[0], fork_decided.CASES[-1])
    )
    found = fork_decided.reproduce(tmp_path, QUIET, cases=[induction, kicked])
    ((_, (header, *lines)),) = found.tables
    # Nothing is solved in so few steps, so nothing is decided.
    assert [line[:5] for line in lines] == [
        [name, change, step, "-", "3 x 3"]
        for name, change in (("induction", "data"), ("modular addition", "kick 0.01"))
        for step in ("0", "4")
    ]
    assert header[:4] == ["problem", "redrawn", "step", "share decided"]
    assert not [note for note in found.notes if "ends otherwise" in note]
    assert all(path.stat().st_size > 5_000 for path in found.figures)
    assert not found.rows
