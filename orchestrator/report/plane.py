"""The plane of the two parameters that matter most, outcome by outcome."""

from dataclasses import dataclass

import duckdb

from attnsweep.orchestrator.analysis.phase.diagram import PhaseDiagram, read_phase_diagram
from attnsweep.orchestrator.analysis.rates.answers import OutcomeRates, outcome_rates
from attnsweep.orchestrator.analysis.rates.ending import STUCK, Ending
from attnsweep.orchestrator.analysis.rates.groups import read_crossing
from attnsweep.orchestrator.analysis.rates.intervals import pooling
from attnsweep.orchestrator.report.regions import Regions
from attnsweep.search_spaces.sweep import Sweep
from attnsweep.workloads.errors import UserError


@dataclass(frozen=True, slots=True)
class Plane:
    """What is known over two parameters.

    Attributes:
        outcomes: The rate of each outcome in each cell.
        stuck: The phase diagram; `None` if the values of a parameter are not numbers.
        by_outcome: The diagram of each outcome that some trainings have and some have not.
    """

    outcomes: OutcomeRates
    stuck: PhaseDiagram | None
    by_outcome: tuple[PhaseDiagram, ...]


def read_plane(connection: duckdb.DuckDBPyConnection, spec: Sweep, regions: Regions | None) -> Plane | None:
    """Reads the plane from a ledger; `None` if there are not two parameters.

    Args:
        connection: From `Ledger.connect`.
        spec: The sweep.
        regions: The cells, whose axes are the plane's.
    """
    if regions is None or len(regions.axes) < 2:
        return None
    x, y = (axis.parameter for axis in regions.axes)
    outcomes = outcome_rates(connection, read_crossing(connection, [spec], (x, y)), pooling(spec))
    try:
        stuck = read_phase_diagram(connection, [spec], x, y, STUCK)
    except UserError:
        # The values of a parameter are not numbers: the report has the cells only.
        return Plane(outcomes, None, ())
    found = (read_phase_diagram(connection, [spec], x, y, Ending(outcome)) for outcome in outcomes.outcomes)
    return Plane(outcomes, stuck, tuple(each for each in found if each.surface is not None))
