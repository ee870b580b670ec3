"""`run --warm-start`: the sampler is told trials of earlier sweeps before its first draw."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from attnsweep import Categorical, Conditional, Float, Sweep, Zip
from attnsweep.orchestrator.running.entry import check_same
from attnsweep.orchestrator.running.session import resume_sweep, run_sweep
from attnsweep.orchestrator.running.study import open_study
from attnsweep.orchestrator.running.warm_start import told_trials, warm_start
from attnsweep.orchestrator.storage.shards import WHOLE
from attnsweep.orchestrator.storage.sources import WARM_START
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.check_files import check_stored
from attnsweep.orchestrator.training.resources import Resources
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.category_pairs import CategoryPairsParameters
from attnsweep.workloads.errors import UserError
from tests.fault import sweeps
from tests.orchestrator.small_sweep import Rows, small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused

N = 12
"""Trials of the earlier sweep: enough for each sampler to learn from them."""


def rows(trial: int, **given: Any) -> Rows:
    """A trial at a place of its own; the later ones are solved more often."""
    n_solved = trial // 3
    place = {"param_n_steps": 8, "param_init_sigma": 0.01 * (trial + 1), "param_learning_rate": 0.002 * (trial + 1)}
    return trial_rows(trial, ["solved"] * n_solved + ["marginal"] * (4 - n_solved), **place | given)


def finished(path: Path, spec: Sweep, *trials: Rows) -> Path:
    sweep_on_disk(path, spec, *trials).record_run(finished=True, seconds=1.0)
    return path


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    spec = small_sweep("earlier", trials=N, sampler="random")
    return finished(tmp_path / "earlier", spec, *(rows(trial) for trial in range(N)))


def told(spec: Sweep, *places: Path) -> list[str]:
    """What is said of the trials that are told."""
    said: list[str] = []
    warm_start(spec, CategoryPairsParameters, places, said.append)
    return said


def begun(path: Path, spec: Sweep, *places: Path) -> SweepDirectory:
    found = warm_start(spec, CategoryPairsParameters, places, print)
    return SweepDirectory.create(path, spec, {}, warm_start=found)


@pytest.mark.parametrize("sampler", ["tpe", "boundary"])
def test_the_first_draws_follow_from_what_was_told(sampler: Sampler, earlier: Path, tmp_path: Path) -> None:
    spec = small_sweep("later", sampler=sampler)

    def drawn(name: str, *places: Path) -> list[Any]:
        study = open_study(begun(tmp_path / name, spec, *places))
        asked = [study.ask() for _ in range(3)]
        study.save()
        # A study that is opened again reads the same trials; an incomplete one is drawn again.
        again = open_study(SweepDirectory.open(tmp_path / name))
        assert [again.values(trial) for trial in asked] == [study.values(trial) for trial in asked]
        assert again.n_asked == 3
        return [study.values(trial) for trial in asked]

    cold, warm = drawn("cold"), drawn("warm", earlier)
    assert drawn("again", earlier) == warm != cold
    assert all(a != b for a, b in zip(cold, warm, strict=True))


@pytest.mark.slow
def test_a_resumed_sweep_draws_by_what_it_was_told_though_the_earlier_one_is_gone(
    earlier: Path, tmp_path: Path, no_mlflow: None
) -> None:
    spec = small_sweep("later", trials=2, replicates=2, sampler="tpe")

    def trained(name: str, *, gone: bool) -> list[dict[str, Any]]:
        run_sweep(spec, tmp_path / name, Resources(local=True), warm_starts=[earlier])
        if gone:
            shutil.rmtree(earlier)
        resume_sweep(tmp_path / name, Resources(local=True), more_trials=2)
        assert check_stored(SweepDirectory.open(tmp_path / name)) == []
        return sweeps.outcomes(tmp_path / name)

    assert trained("a", gone=False) == trained("b", gone=True)


def test_trials_that_the_new_sweep_could_not_draw_are_left_out_and_counted(earlier: Path) -> None:
    narrow = small_sweep("later").but(
        space={"n_steps": 8, "init_sigma": Float(1e-3, 0.05), "learning_rate": Float(1e-3, 1.0)}
    )
    assert ["5 trials" in line and "7 others" in line for line in told(narrow, earlier)] == [True]


def test_rows_and_conditions_of_the_new_space_are_found(tmp_path: Path) -> None:
    spec = small_sweep("earlier", trials=3, sampler="random")
    pairs = [(3, 4, "sgd", 0.1), (4, 6, "adam", 0.01), (3, 6, "sgd", 0.1)]
    names = ("n_categories", "n_positions", "optimizer", "learning_rate")
    path = finished(
        tmp_path / "earlier",
        spec,
        *(
            trial_rows(at, ["solved"] * 4, **{f"param_{name}": value for name, value in zip(names, pair, strict=True)})
            for at, pair in enumerate(pairs)
        ),
    )
    space = {
        "n_categories, n_positions": Zip(((4, 6), (3, 4))),
        "optimizer": Categorical(("sgd", "adam")),
        "learning_rate": Conditional(on="optimizer", among=("adam",), then=Float(0.001, 0.02), otherwise=0.1),
    }
    begun(tmp_path / "s", spec.but(space=space, sampler="tpe"), path)
    assert [each.params for each in told_trials(SweepDirectory.open(tmp_path / "s"))] == [
        {"n_categories, n_positions": "[3, 4]", "optimizer": "sgd"},
        {"n_categories, n_positions": "[4, 6]", "optimizer": "adam", "learning_rate": 0.01},
    ]


@pytest.mark.parametrize("changes", [{"sampler": "random"}, {"workload": "gpt"}, {"space": {"n_steps": 9}}])
def test_what_does_not_fit_is_refused(changes: dict[str, Any], earlier: Path) -> None:
    with refused("--warm-start", UserError):
        told(small_sweep("later").but(**changes), earlier)


def test_a_sweep_that_cannot_be_told_is_refused(earlier: Path, tmp_path: Path) -> None:
    spec = small_sweep("earlier", trials=2)
    sweep_on_disk(tmp_path / "running", spec, rows(0))
    with refused("--warm-start", UserError):
        told(small_sweep("later"), tmp_path / "running")
    finished(tmp_path / "failed", spec, trial_rows(0, ["failed"] * 4))
    with refused("--warm-start", UserError):
        told(small_sweep("later"), tmp_path / "failed")
    with refused("--warm-start", UserError):
        check_same(spec, None, WHOLE, [earlier], SweepDirectory.open(tmp_path / "running"))


@pytest.mark.parametrize("damage", ["gone", "another"])
def test_what_was_told_must_be_as_recorded(damage: str, earlier: Path, tmp_path: Path) -> None:
    directory = begun(tmp_path / "s", small_sweep("later"), earlier)
    if damage == "gone":
        (tmp_path / "s" / WARM_START.name).unlink()
    else:
        found = WARM_START.read(directory.place)
        WARM_START.write(directory.place, found.model_copy(update={"sweeps": ()}))
    with refused("warm_start.json", UserError):
        open_study(directory)
    assert [WARM_START.name in str(each) for each in check_stored(directory)] == [True]
