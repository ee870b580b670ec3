"""Lines of Python by room: numbers that only fall."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUDGET = {
    "orchestrator": 18_143,
    "workloads": 17_337,
    "search_spaces": 2_392,
    "reproduction": 4_436,
    "benchmarks": 1_588,
    "tests": 26_750,
}


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_keeps_its_budget(room: str) -> None:
    lines = sum(len(path.read_text().splitlines()) for path in (ROOT / room).rglob("*.py"))
    assert lines <= BUDGET[room]
