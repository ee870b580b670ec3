"""A day on a GPU, rehearsed: every part on the pretended device, with PyTorch, NumPy and Arrow alone."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from shared.bare_sweep import TRIALS, Points, drawn_points
from shared.day_parts import PARTS

ROOT = Path(__file__).parents[2]
BARE = """
import runpy, sys

class Bare:
    # A finder that finds nothing but these.
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, fullname, path=None, target=None):
        top = fullname.partition(".")[0]
        return self._finder.find_spec(fullname, path, target) if top in ALLOWED or top.startswith("_") else None

    def __getattr__(self, name):
        return getattr(self._finder, name)

ALLOWED = set(sys.stdlib_module_names) | {
    *("torch", "torchgen", "functorch", "triton", "numpy", "pyarrow", "attnsweep", "harness", "shared", "gpu", "tests"),
    # What PyTorch asks for itself.
    *("filelock", "typing_extensions", "setuptools", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "fsspec"),
}
sys.meta_path[:] = map(Bare, sys.meta_path)
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
QUICK = ("sweeps_of_p", "main_command", "packs", "precision")
APART = """
import json, os, signal, sys, threading, time
from pathlib import Path
from shared.parts_apart import Part, run_parts

def finds(until):
    yield "a", {"seconds": 1}
    yield "b", {"seconds": 2}

def raises(until):
    yield "a", {}
    raise ValueError("a kernel")

def dies(until):
    yield "a", {}
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(until):
    # As a program that it started, which outlives a mere process.
    if not os.fork():
        time.sleep(600)
    yield "a", {"child": True}
    threading.Event().wait()

parts = [Part(each.__name__, each, 20) for each in (raises, dies)]
parts += [Part("hangs", hangs, 0.3), Part("finds", finds, 20)]
run_parts([Part("before", finds, 20)], Path("lines"), 60)
found = run_parts(parts, Path("lines"), 60)
found += run_parts([Part("late", finds, 20)], Path("lines"), 1)
print(json.dumps(found))
"""


@pytest.mark.parametrize("parts", [QUICK, pytest.param((), id="all", marks=pytest.mark.scale)])
def test_a_day_on_a_gpu_is_rehearsed_with_pytorch_numpy_and_arrow_alone(parts: tuple[str, ...], tmp_path: Path) -> None:
    script = str(ROOT / "benchmarks" / "gpu_day.py")
    chosen = ["--parts", *parts] if parts else []
    command = [sys.executable, "-c", BARE, script, "--rehearse", "--out", "out.json", *chosen]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    day = json.loads((tmp_path / "out.json").read_text())
    assert {row["part"]: row["end"] for row in day["parts"]} == dict.fromkeys(parts or PARTS, "ended"), done.stderr
    findings = day["findings"]
    assert findings["main_command"]["run"]["left_out"].startswith("not installed: ray, optuna")
    for part, names in findings.items():
        for name, found in names.items():
            assert not found.get("failed"), (part, name, found)
            assert found.get("equal", True) in (True, 1), (part, name, found)
            assert found.get("replayed", 0) == found.get("equal_to_the_bit", 0), (part, name, found)
    assert findings["sweeps_of_p"]["quickstart, merged"]["trainings"] == 4
    if not parts:
        assert findings["triangular"]["direction"]["largest_relative_difference"] < 1e-14
    lines = [json.loads(line) for line in (tmp_path / "gpu_day.jsonl").read_text().splitlines()]
    assert {line["part"] for line in lines} == set(parts or PARTS)


def test_every_part_has_predictions() -> None:
    predictions = json.loads((ROOT / "benchmarks" / "gpu_day_predictions.json").read_text())["predictions"]
    assert set(PARTS) ^ set(predictions) == {"machine", "main_command"}


def test_a_part_that_crashes_or_hangs_loses_nothing_of_the_others(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
    done = subprocess.run(
        [sys.executable, "-c", APART], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ends = {line["part"]: line["found"]["end"] for line in found if line["name"] == "end"}
    assert ends == {
        "raises": "failed: exit code 1",
        "dies": "failed: exit code -11",
        "hangs": "stopped after 0 s",
        "finds": "ended",
        "late": "left out: the time was up",
    }
    assert [line["name"] for line in found if line["part"] == "raises"] == ["a", "failed", "end"]
    assert "ValueError: a kernel" in str(found)
    assert sum(line["name"] == "a" for line in found) == 4
    assert len((tmp_path / "lines").read_text().splitlines()) == len(found) + 3


def test_the_points_in_the_file_are_those_that_the_sweeps_draw() -> None:
    # With a parameter that some trials have not, and by another sampler.
    for name in ("stuck_full", "quickstart"):
        stored, drawn = Points.of(name), drawn_points(name, min(3, TRIALS[name]))
        assert {len(column) for column in stored.drawn.values()} == {TRIALS[name]}
        begun = replace(stored, drawn={each: column[:3] for each, column in stored.drawn.items()})
        assert json.loads(json.dumps(vars(drawn))) == vars(begun)
