"""A user's folders may have the names of ours: results stay the same to the last bit."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDERS = ("orchestrator", "workloads", "search_spaces", "reproduction")
SCRIPT = """
import hashlib
import os

import torch

from attnsweep import Float, Sweep
from attnsweep.search_spaces.validation import check_sweep
from attnsweep.workloads.engine.contract import Training
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.registry import load_workload
from attnsweep.workloads.testing import defaults

torch.set_num_threads(1)
space = {"init_sigma": Float(1e-3, 1.0, log=True), "n_steps": 30}
sweep = Sweep(name="mine", workload="category_pairs", space=space, trials=1)
workload = load_workload(sweep.workload)
check_sweep(sweep, workload.parameters)
bits = hashlib.sha256()
SETTINGS = (
    {"variant": "positions_only"},
    {"variant": "categories_only"},
)
for values in SETTINGS:
    parameters = defaults(workload, n_categories=5, n_positions=9, n_steps=30, **values)
    pack = Pack(workload, [Training(parameters, seed) for seed in range(3)])
    pack.train_to_end()
    for metric, table in sorted(pack.result().evidence.metrics.items()):
        bits.update(metric.encode() + table.tobytes())
print(bits.hexdigest(), os.environ["MKL_CBWR"])
"""


def _with_folders(path: Path) -> Path:
    for name in FOLDERS:
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text("raise RuntimeError('the folder of the user was imported')\n")
    return path


@pytest.mark.slow
def test_folders_of_our_names_change_nothing(tmp_path: Path) -> None:
    working, beside = _with_folders(tmp_path / "working"), _with_folders(tmp_path / "beside")
    (beside / "mine.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    done = subprocess.run(
        [sys.executable, beside / "mine.py"],
        cwd=working,
        env=environment | {"PYTHONPATH": str(working)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(SCRIPT, "mine.py", "exec"), {"__name__": "__main__"})
    assert done.stdout == printed.getvalue()
    assert done.stdout.split()[1] == "AVX2,STRICT"
