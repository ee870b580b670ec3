"""The models of docs/examples/borrowed.py."""

import sys
from pathlib import Path
from types import ModuleType

from attnsweep.workloads.registry import load_workload

_FILE = Path(__file__).parents[3] / "docs" / "examples" / "borrowed.py"
BORROWED: ModuleType = sys.modules[type(load_workload(f"{_FILE}:borrowed")).__module__]
