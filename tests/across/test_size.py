"""Lines of Python by room: numbers that only fall."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUDGET = {
    "orchestrator": 25_580,
    "workloads": 19_870,
    "search_spaces": 3_783,
    "reproduction": 8_000,
    "benchmarks": 1_600,
    "tests": 38_210,
}


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_keeps_its_budget(room: str) -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / room).rglob("*.py"))
    assert lines <= BUDGET[room]
