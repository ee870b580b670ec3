"""What a summary shows of a sweep over many parameters, and what of it MLflow keeps."""

import io
from pathlib import Path

from rich.console import Console

from attnsweep import Float
from attnsweep.orchestrator.analysis.rates.by_parameter import MOST_PARAMETERS
from attnsweep.orchestrator.running.summary import summarize
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

VARIED = (
    *("init_sigma", "learning_rate", "layer_norm_eps", "weight_decay", "momentum"),
    *("flavour_weight", "beta_1", "beta_2", "adam_eps", "gradient_clip_norm"),
)


def _swept(folder: Path) -> SweepDirectory:
    """Ten parameters; `init_sigma` alone decides."""
    spec = small_sweep("many", space={"n_steps": 8} | {name: Float(0.1, 0.9) for name in VARIED}, trials=4)
    trials = []
    for trial in range(4):
        values = {f"param_{name}": 0.5 for name in VARIED} | {"param_init_sigma": 0.2 + 0.6 * (trial % 2)}
        trials.append(trial_rows(trial, ["degenerate_zero" if trial % 2 else "solved"] * 4, **values))
    return sweep_on_disk(folder, spec, *trials)


def test_the_parameters_whose_rates_differ_most_are_shown(tmp_path: Path) -> None:
    summary = summarize(_swept(tmp_path / "s"), refused={}, finished=False, seconds=1.0, n_before=0, replays=None)
    told = io.StringIO()
    summary.print(Console(file=told, width=200))
    shown = [name for name in VARIED if f"\n {name} " in told.getvalue()]
    assert len(shown) == MOST_PARAMETERS < len(VARIED)
    assert "init_sigma" in shown


def test_a_run_that_ended_before_its_first_training_says_how_to_continue_and_nothing_else(tmp_path: Path) -> None:
    directory = sweep_on_disk(tmp_path / "s", small_sweep("s"))
    summary = summarize(directory, refused={}, finished=False, seconds=1.0, n_before=0, replays=None)
    told = io.StringIO()
    summary.print(Console(file=told, width=200))
    title, last = told.getvalue().strip().splitlines()
    assert title.endswith("0 trainings of 0 trials")
    assert last == f"interrupted; continue with: attnsweep resume {tmp_path / 's'}"
