"""The block engine's programs, for studies that train in this process."""

from attnsweep.workloads.engine.programs import NoCompilerError, block_engine
from attnsweep.workloads.engine.shape_programs import Programs

_known: dict[str, Programs] = {}


def block_programs(workload: str) -> Programs | None:
    """The programs of a workload's shapes, each compiled once; `None` on a machine that cannot compile.

    Args:
        workload: Its name.
    """
    try:
        block_engine()
    except NoCompilerError:
        return None
    return _known.setdefault(workload, Programs())
