"""A day on a GPU in one command: bits, whole sweeps, large packs, what was open; the most valuable parts first.

    python benchmarks/gpu_day.py [--minutes 25] [--parts bits ...] [--lines gpu_day.jsonl] [--out gpu_day.json]
    python benchmarks/gpu_day.py --rehearse    everything small on the pretended device, in seconds

Needs torch, numpy and pyarrow only, and no installation: it finds attnsweep beside itself. Each part has a process and
a time limit of its own, and appends what it finds to `--lines` at once. Where time is short the last parts are left
out: `--parts` runs them the next time. Beside each figure stands its prediction (`gpu_day_predictions.json`), if there
is one; the predictions were committed before any run. Whole sweeps take the plan, the packs and the trainer of
`attnsweep run --local` and write rows by pyarrow; `main_command` runs that command itself where all that it needs is
installed.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

from harness import chosen, main

sys.path.append(str(Path(__file__).parents[1] / "src"))
from shared.day_parts import PARTS, Day
from shared.parts_apart import END, run_parts

PREDICTIONS = json.loads(Path(__file__).with_name("gpu_day_predictions.json").read_text())["predictions"]
Line: TypeAlias = dict[str, Any]


def measure(
    *,
    minutes: float = 25.0,
    parts: tuple[str, ...] = tuple(PARTS),
    lines: str = "gpu_day.jsonl",
    rehearse: bool = False,
) -> dict[str, Any]:
    """Runs the parts."""
    day = Day("pretend", is_small=True) if rehearse else Day("cuda")
    day.prepare()
    with tempfile.TemporaryDirectory() as programs:
        # No program is compiled yet: Figure 4 is measured cold and warm.
        os.environ["XDG_CACHE_HOME"] = programs
        found = run_parts(day.parts(chosen(PARTS, parts)), Path(lines), 60 * minutes)
    return {"rehearsed": rehearse, "findings": _by_part(found), "predictions": _beside(found), "parts": _ends(found)}


def _by_part(found: list[Line]) -> dict[str, dict[str, Any]]:
    by_part: dict[str, dict[str, Any]] = {}
    for line in found:
        if line["name"] != END:
            by_part.setdefault(line["part"], {})[line["name"]] = line["found"]
    return by_part


def _beside(found: list[Line]) -> list[Line]:
    """Each figure that was predicted, measured or not."""
    by_part = _by_part(found)
    return [
        {"part": part, "name": name, "what": what, "predicted": value, "measured": measured.get(what, "")}
        for part, names in PREDICTIONS.items()
        if part in by_part
        for name, figures in names.items()
        for measured in [by_part[part].get(name, {})]
        for what, value in figures.items()
    ]


def _ends(found: list[Line]) -> list[Line]:
    return [{"part": line["part"], **line["found"]} for line in found if line["name"] == END]


if __name__ == "__main__":
    main(measure)
