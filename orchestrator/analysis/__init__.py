"""What a sweep's ledger says: rates with intervals, models, curves, comparisons, figures. `open_sweep` is the way in.

Light to import: what computes is imported where it is called.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnsweep.orchestrator.analysis.comparison.sweeps import SweepComparison
    from attnsweep.orchestrator.analysis.opened_sweep import SweepData


def open_sweep(directory: Path | str, *more: Path | str) -> "SweepData":
    """Opens a sweep for analysis, or several of one workload as one; a sweep that is still running too.

    Args:
        directory: A sweep directory, or `s3://BUCKET/PREFIX`.
        more: Further ones: their trials are numbered on from 1,000,000, 2,000,000, ...

    Raises:
        UserError: For a directory without a sweep, the same sweep twice, or sweeps of different workloads.
    """
    from attnsweep.orchestrator.analysis.opened_sweep import SweepData
    from attnsweep.orchestrator.storage.location import locate

    return SweepData.open(*(locate(each) for each in (directory, *more)))


def compare(a: "SweepData | Path | str", b: "SweepData | Path | str", *, by: str | None = None) -> "SweepComparison":
    """Whether the stuck rate of `b` differs from that of `a`, on the same configurations and seeds where there are any.

    Args:
        a, b: Opened sweeps, or their directories.
        by: Also in each bin of this parameter.

    Raises:
        UserError: For a directory without a sweep, sweeps of different workloads, or an unknown parameter.
    """
    from attnsweep.orchestrator.analysis.comparison.sweeps import compare_sweeps

    first, second = (open_sweep(each) if isinstance(each, str | Path) else each for each in (a, b))
    return compare_sweeps(first, second, by=by)
