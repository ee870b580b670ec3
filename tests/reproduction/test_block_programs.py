"""Studies compile where they can."""

import pytest

from attnsweep.reproduction.trained import block_programs


def test_a_machine_without_a_compiler_trains_without_programs(without_compiler: None) -> None:
    assert block_programs("category_pairs") is None


def test_workloads_share_no_programs() -> None:
    if block_programs("category_pairs") is None:
        pytest.skip("this machine cannot compile")
    assert block_programs("category_pairs") is block_programs("category_pairs")
    assert block_programs("category_pairs") is not block_programs("gpt")
