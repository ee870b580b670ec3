"""Each kind of damage to the ledger, the study and the record is found, and named."""

import pytest

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.orchestrator.tools.audit.audit import audit
from tests.orchestrator.tools.audit.damages import DAMAGES, problems_of

WITHOUT_DIGEST = {"report", ".lock", "study.journal"}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found(damage: str, sweep: SweepDirectory) -> None:
    inflict, n_problems, named = DAMAGES[damage]
    inflict(sweep)
    found = problems_of(audit(sweep.place))
    assert (len(found), any(named in problem for problem in found)) == (n_problems, True), found


@pytest.mark.slow
def test_a_changed_bit_of_any_file_is_found(sweep: SweepDirectory) -> None:
    folder = sweep.place
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    checked = [path for path in files if path.relative_to(folder).parts[0] not in WITHOUT_DIGEST]
    assert len(checked) > 5
    for path in checked:
        whole = path.read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            assert any(path.name in problem for problem in problems_of(audit(folder))), (path, at)
        path.write_bytes(whole)
    assert problems_of(audit(folder)) == []
