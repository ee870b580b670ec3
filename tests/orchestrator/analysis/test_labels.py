"""How numbers are named in tables and on the terminal."""

import pytest

from attnsweep.orchestrator.analysis.labels import speed_label


@pytest.mark.parametrize(
    ("speed", "label"), [(0.0, "0"), (0.143, "0.14"), (9.94, "9.9"), (10.4, "10"), (1092.3, "1092")]
)
def test_a_slow_sweep_has_a_speed_too(speed: float, label: str) -> None:
    assert speed_label(speed) == label
