"""Sweeps of small attention models: the names that users import. Each name loads its module on first use.

The names are declared in `__init__.pyi`, which type checkers read too. `import attnsweep` loads neither torch nor Ray,
and needs no other package: `attnsweep.workloads` trains with only torch, NumPy and PyArrow installed.
"""

import ast
import os
from pathlib import Path

# Without a mode MKL rounds a product by the memory alignment of its matrices, so a training would depend on its place
# in the pack. AUTO takes the processor's fastest branch. MKL reads this variable at its first product, in the driver
# and in trainers alike.
os.environ.setdefault("MKL_CBWR", "AUTO")
# Arrow's own allocator keeps what the ledger's merges free, 70 MiB and more in the driver. Arrow reads this variable
# when it is imported; what reads data sets does not follow `pyarrow.set_memory_pool`.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _modules_by_name() -> dict[str, str]:
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    imports = (node for node in stub.body if isinstance(node, ast.ImportFrom))
    return {alias.name: f"{__name__}.{node.module}" for node in imports for alias in node.names}


_MODULES = _modules_by_name()
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(__import__(_MODULES[name], fromlist=[name]), name)
    return found


def __dir__() -> list[str]:
    return __all__
