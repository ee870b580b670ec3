"""Answers from a sweep's ledger: rates with intervals, models, curves, comparisons, figures. Start with `SweepData`.

The package is fast to import: modules that compute are imported when they are called.

An argument name means the same in all modules: `connection` is from `Ledger.connect` or `SweepData.reading`; `spec` or
`specs` are the specs of the sweeps in the connection; `ending` is the outcome whose rate is computed; `pool` combines
the counts of several trials into one rate (`pooling`); `once_per_trial` gives all trials equal weight, whatever their
number of trainings.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnsweep.orchestrator.analysis.comparison import SweepComparison
    from attnsweep.orchestrator.analysis.opened_sweep import SweepData
    from attnsweep.orchestrator.storage.place_names import PlaceName


def compare(
    a: "SweepData | PlaceName | str",
    b: "SweepData | PlaceName | str",
    *,
    by: str | Sequence[str] | None = None,
    outcome: str = "stuck",
    detail: str | None = None,
) -> "SweepComparison":
    """Compares a rate, such as the stuck rate, between two sweeps `a` and `b`; if possible on pairs of trainings with
    equal configuration and seed.

    Args:
        a, b: Opened sweeps, or their directories.
        by: A parameter, or two: the rates are also compared in each bin, or in each cell of the two, and a test says
            whether the change differs between these.
        outcome: The rate to compare: of an outcome such as `degenerate_zero`; `stuck` for all those that count as
            stuck.
        detail: An `outcome_detail` such as `mean`; default any.

    Raises:
        UserError: For a directory without a sweep, sweeps of different workloads, an unknown parameter, outcome
            or detail.
    """
    from attnsweep.orchestrator.analysis.comparison import compare_sweeps
    from attnsweep.orchestrator.analysis.opened_sweep import SweepData

    first, second = (sweep if isinstance(sweep, SweepData) else SweepData.open(sweep) for sweep in (a, b))
    return compare_sweeps(first, second, by=by, outcome=outcome, detail=detail)
