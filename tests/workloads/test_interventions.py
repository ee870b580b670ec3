"""The text of an intervention: what it says, and what is refused."""

import pytest

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.interventions import Clamp, Freeze, Kick, Scale, Steps, interventions_of
from attnsweep.workloads.parameters import TrainingParameters
from tests.refusals import refused


def test_a_text_joins_interventions() -> None:
    text = " freeze attention.query 0..500;clamp 1:3 previous_token 7.. ; kick 1e-1 at 300"
    text += ";scale 0:2 1.5 3..4; scale attention 2 0.."
    found = interventions_of(text)
    assert found == (
        Freeze(parameter="attention.query", steps=Steps(0, 500)),
        Clamp(layer=1, head=3, pattern="previous_token", steps=Steps(7, None)),
        Kick(size=0.1, steps=Steps(300, None)),
        Scale(layer=0, head=2, factor=1.5, steps=Steps(3, 4)),
        Scale(layer=None, head=None, factor=2.0, steps=Steps(0, None)),
    )
    assert interventions_of("; ".join(map(str, found))) == found
    assert interventions_of(None) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "freeze query", "freeze query 5..5", "freeze query 3..11", "clamp 0:0 previous 0..5"),
        *("clamp 0:0 none 10..", "scale 0:0 -2 0..5", "scale 0 2 0..5", "scale 0:0 1e999 0..5"),
        *("scale attention 2 3..11", "kick 1e999 at 5", "kick 0 at 5", "kick 0.1 at 10"),
    ],
)
def test_what_cannot_be_done_is_refused(text: str) -> None:
    with refused("intervention", SpecError):
        TrainingParameters.resolve({"n_steps": 10, "intervention": text})
