"""The sweep loop with several trainers: what it does between two looks at their reports, and what it commits."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.ledger.writer import LedgerWriter
from attnsweep.orchestrator.running import loop as loop_module
from attnsweep.orchestrator.running.loop import SweepLoop
from attnsweep.orchestrator.running.study import Study, open_study, read_trials
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.files import parquet_names
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.search_spaces import Sweep
from attnsweep.workloads.category_pairs import CategoryPairs
from tests.orchestrator.running.fleet import Fleet
from tests.orchestrator.small_sweep import small_sweep

N_TRAINERS = 3
WORKLOAD = CategoryPairs()


def _several(directory: SweepDirectory, look: Callable[[], None] = lambda: None) -> Fleet:
    return Fleet(directory, *["here"] * N_TRAINERS, look=look)


def _directory(path: Path, **changes: object) -> SweepDirectory:
    spec: Sweep = small_sweep("loop", sampler="random", trials=12, replicates=1).but(**changes)
    declared = WORKLOAD.parameters.declared()
    defaults = {name: each.default for name, each in declared.items() if name not in spec.space}
    return SweepDirectory.create(path, spec, defaults)


@contextmanager
def _opened(directory: SweepDirectory, pool: Fleet, study: Study) -> Iterator[SweepLoop]:
    with closing(LedgerWriter(directory.place, schemas_of(WORKLOAD), directory.spec_sha256)) as writer:
        loop = SweepLoop(directory, WORKLOAD, study, writer, pool, pack_size=4)
        loop.resume(Ledger(directory.place).trainings())
        yield loop


def test_packs_that_end_together_are_one_commit(tmp_path: Path) -> None:
    directory = _directory(tmp_path / "s")
    with _opened(directory, _several(directory), open_study(directory)) as loop:
        assert loop.run(lambda: False)
    rows = Ledger(directory.place).trainings(columns=["trial", "pack"])
    assert sorted(rows["trial"].to_pylist()) == list(range(12))
    assert len(set(rows["pack"].to_pylist())) == N_TRAINERS
    assert len(parquet_names(directory.place / "trainings")) == 1


@pytest.mark.parametrize("changes", [{"target": "stuck_rate <= 1"}, {"patience": 2}])
def test_results_end_a_sweep_early_and_for_good(changes: dict[str, object], tmp_path: Path) -> None:
    directory = _directory(tmp_path / "s", trials=200, **changes)
    for n_trials in (4 * N_TRAINERS, None, None):
        with _opened(directory, _several(directory), open_study(directory)) as loop:
            assert bool(loop.end_reason) == (n_trials is None)
            assert loop.run(lambda: False)
            assert loop.end_reason
        rows = Ledger(directory.place).trainings(columns=["trial"])["trial"].to_pylist()
        assert sorted(rows) == list(range(4 * N_TRAINERS))


@pytest.mark.parametrize("ask_seconds", [0.0, float("inf")])
def test_a_sampler_that_learns_draws_few_trials_ahead_and_what_a_single_trainer_would_draw(
    ask_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten start-up trials, then an eighth of all at a time, drawn from the same results whatever pack ends first."""
    monkeypatch.setattr(loop_module, "_ASK_SECONDS", ask_seconds)
    drawn: list[list[Any]] = []
    for name in ("several", "single"):
        directory = _directory(tmp_path / name, sampler="tpe", trials=32, replicates=2)
        study, still_open = open_study(directory), list[int]()
        pool = _several(directory) if name == "several" else Fleet(directory, "here")
        with _opened(directory, pool, study) as loop:
            ask = study.ask

            def asked(ask: Any = ask, loop: SweepLoop = loop, counts: list[int] = still_open) -> Any:
                counts.append(len(loop._trials.still_open))
                return ask()

            monkeypatch.setattr(study, "ask", asked)
            assert loop.run(lambda: False)
        assert still_open == [*range(10), *(number % 4 for number in range(22))]
        study.save()
        drawn.append([trial.params for trial in read_trials(directory)])
    assert drawn[0] == drawn[1]


def test_a_failure_that_stops_the_sweep_leaves_the_rows_that_came_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _directory(tmp_path / "s")
    receive, n_heard = SweepLoop._receive, 0

    def stop_at_the_third(loop: SweepLoop, *report: object) -> None:
        nonlocal n_heard
        n_heard += 1
        if n_heard == N_TRAINERS:
            raise SweepError("enough", directory.place)
        receive(loop, *report)  # type: ignore[arg-type]

    monkeypatch.setattr(SweepLoop, "_receive", stop_at_the_third)
    with (
        _opened(directory, _several(directory), open_study(directory)) as loop,
        pytest.raises(SweepError, match="enough"),
    ):
        loop.run(lambda: False)
    assert Ledger(directory.place).trainings(columns=[]).num_rows == 8
