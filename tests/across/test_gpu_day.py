"""A day on a GPU, rehearsed: every part on the pretended device, with PyTorch, NumPy and Arrow alone."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

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
QUICK = ("machine", "bits", "sweeps_of_p", "main_command", "million", "triangular", "packs", "precision", "stuck_full")


def _rehearsed(folder: Path, *parts: str) -> dict[str, object]:
    command = [sys.executable, "-c", BARE, str(ROOT / "benchmarks" / "gpu_day.py"), "--rehearse", "--out", "out.json"]
    done = subprocess.run([*command, "--parts", *parts], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads((folder / "out.json").read_text())
    return found
