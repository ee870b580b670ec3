"""Studies compile where they can."""

from pathlib import Path

import pytest

from attnsweep.reproduction.block_programs import block_programs
from attnsweep.workloads.engine.programs import compiler


def test_a_machine_without_a_compiler_trains_without_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler.cache_clear()
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    try:
        assert block_programs("category_pairs") is None
    finally:
        compiler.cache_clear()


def test_workloads_share_no_programs() -> None:
    if block_programs("category_pairs") is None:
        pytest.skip("this machine cannot compile")
    assert block_programs("category_pairs") is block_programs("category_pairs")
    assert block_programs("category_pairs") is not block_programs("gpt")
