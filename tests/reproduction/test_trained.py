"""The sweep behind a reproduction is the shipped one, or is refused; studies compile where they can."""

from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.reproduction.trained import compiled_programs, is_same_but_for_seed, swept
from attnsweep.search_spaces.loading import load_sweep
from attnsweep.workloads.errors import UserError
from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows
from tests.refusals import refused


def test_a_directory_with_another_sweep_of_that_name_is_refused(tmp_path: Path) -> None:
    sweep_on_disk(tmp_path / "shin_flavours", small_sweep("shin_flavours"))
    with refused("--dir", UserError):
        swept("shin_flavours", tmp_path, Console(quiet=True))


def test_a_finished_sweep_is_read_without_training(tmp_path: Path) -> None:
    made = sweep_on_disk(tmp_path / "quickstart", load_sweep("quickstart"), trial_rows(0, ["solved"]))
    made.record_run(finished=True, seconds=1.0)
    assert swept("quickstart", tmp_path, Console(quiet=True)).finished


def test_the_shipped_sweep_with_another_seed_is_the_same() -> None:
    shipped = load_sweep("quickstart")
    assert is_same_but_for_seed(shipped.but(seed=5), shipped)
    assert not is_same_but_for_seed(shipped.but(seed=5, replicates=4), shipped)


def test_a_machine_without_a_compiler_trains_without_programs(without_compiler: None) -> None:
    assert compiled_programs("category_pairs") is None


def test_workloads_share_no_programs() -> None:
    if compiled_programs("category_pairs") is None:
        pytest.skip("this machine cannot compile")
    assert compiled_programs("category_pairs") is compiled_programs("category_pairs")
    assert compiled_programs("category_pairs") is not compiled_programs("gpt")
