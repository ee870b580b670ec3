"""The disk fills up during a sweep: one message, nothing half-written, and resumable when there is space."""

from pathlib import Path

import pytest

from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.storage.errors import SweepError
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from tests.fault import sweeps
from tests.fault.disks import enlarge, small_disk

pytestmark = pytest.mark.usefixtures("no_mlflow")


@pytest.mark.scale
def test_a_full_disk_stops_the_sweep_which_goes_on_when_there_is_room(tmp_path: Path) -> None:
    spec = sweeps.small_sweep(trials=24)
    sweeps.run(spec, tmp_path / "undisturbed")
    with small_disk(tmp_path / "disk", 300) as disk:
        with pytest.raises(SweepError, match="No space left on device"):
            sweeps.run(spec, disk / "s", pack_size=8)
        assert not SweepDirectory.open(disk / "s").finished
        kept = sweeps.outcomes(disk / "s")
        assert 0 < len(kept) < 96
        assert [str(problem) for problem in audit(disk / "s").problems] == []

        enlarge(disk, 50_000)
        assert sweeps.resume(disk / "s").finished
        assert sweeps.outcomes(disk / "s") == sweeps.outcomes(tmp_path / "undisturbed")
        assert sweeps.told(disk / "s") == sweeps.told(tmp_path / "undisturbed")
