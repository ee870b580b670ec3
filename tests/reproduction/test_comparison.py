"""Rows of a reproduction: estimates with intervals, on screen and as JSON."""

import io
import json
from pathlib import Path

from attnsweep.orchestrator.terminal import PlainConsole
from attnsweep.reproduction.comparison import ComparedValue, Comparison

COMPARISON = Comparison(
    title="a table",
    source="Author 2020, Table 1",
    rows=[
        ComparedValue(name="rate", published=0.5, ours=0.25, low=0.2, high=0.3, agrees=False),
        ComparedValue(name="claim [a]", published="falls", ours="falls", agrees=True),
        ComparedValue(name="new", published=None, ours=1.0),
    ],
    notes=["at another size"],
    tables=[("families", [["family", "index"], ["zero", "2"]])],
)


def test_the_table_has_ours_beside_the_published() -> None:
    screen = io.StringIO()
    # The command line's console, which shows texts literally: markup in them would be printed.
    COMPARISON.print(PlainConsole(file=screen, width=100))
    lines = [" ".join(line.split()) for line in screen.getvalue().splitlines()]
    assert "a table Author 2020, Table 1" in lines
    assert "rate 0.5 0.25 [0.2, 0.3] differs" in lines
    assert "claim [a] falls falls agrees" in lines
    assert "new - 1" in lines
    assert "zero 2" in lines
    assert "- at another size" in lines


def test_its_json_is_rows(tmp_path: Path) -> None:
    COMPARISON.write(tmp_path / "new" / "table-1.json")
    content = json.loads((tmp_path / "new" / "table-1.json").read_text())
    assert content["rows"][0] == {
        "name": "rate", "published": 0.5, "ours": 0.25, "low": 0.2, "high": 0.3, "agrees": False,
    }  # fmt: skip
    assert content["tables"] == [{"title": "families", "rows": [["family", "index"], ["zero", "2"]]}]
