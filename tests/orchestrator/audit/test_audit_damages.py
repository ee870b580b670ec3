"""Each kind of damage to the ledger, the study and the record is found, and named."""

import pytest

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.orchestrator.audit.damages import DAMAGES, problems_of


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: str, sweep: SweepDirectory) -> None:
    inflict, n_problems, named = DAMAGES[damage]
    inflict(sweep)
    found = problems_of(audit(sweep.place))
    assert (len(found), any(named in problem for problem in found)) == (n_problems, True), found
