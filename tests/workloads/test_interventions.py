"""The text of an intervention: what it says, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnsweep.workloads.errors import SpecError
from attnsweep.workloads.interventions import (
    PATTERNS,
    Clamp,
    Freeze,
    Intervention,
    Kick,
    Scale,
    Steps,
    intervene,
    interventions_of,
)
from attnsweep.workloads.parameters import TrainingParameters
from tests.refusals import refused

_NUMBERS = st.integers(0, 9_999)
_STEPS = st.one_of(
    st.builds(Steps, _NUMBERS, st.none()), _NUMBERS.flatmap(lambda a: st.builds(Steps, st.just(a), st.just(a + 7)))
)
_FACTORS = st.floats(1e-6, 1e6).map(lambda factor: float(f"{factor:.12g}"))
_INTERVENTIONS: st.SearchStrategy[Intervention] = st.one_of(
    st.builds(Freeze, st.sampled_from(("attention.query", "blocks.1", "w_0")), _STEPS),
    st.builds(Clamp, _NUMBERS, _NUMBERS, st.sampled_from(PATTERNS), _STEPS),
    st.builds(Scale, _NUMBERS, _NUMBERS, _FACTORS, _STEPS),
    st.builds(Scale, st.none(), st.none(), _FACTORS, _STEPS),
    st.builds(Kick, _FACTORS, _NUMBERS),
)


@given(st.lists(_INTERVENTIONS, min_size=1, max_size=4))
def test_interventions_are_read_as_they_are_written(written: list[Intervention]) -> None:
    assert interventions_of("; ".join(map(str, written))) == tuple(written)


def test_a_text_joins_interventions() -> None:
    text = " freeze attention.query 0..500;clamp 1:3 previous_token 7.. ; kick 0.1 at 300"
    text += ";scale 0:2 1.5 3..4; scale attention 2 0.."
    assert interventions_of(text) == (
        Freeze("attention.query", Steps(0, 500)),
        Clamp(1, 3, "previous_token", Steps(7, None)),
        Kick(0.1, 300),
        Scale(0, 2, 1.5, Steps(3, 4)),
        Scale(None, None, 2.0, Steps(0, None)),
    )
    assert interventions_of(None) == ()


def test_intervene_writes_the_text() -> None:
    assert intervene(parameter="attention.query", freeze=(0, 500)) == "freeze attention.query 0..500"
    assert intervene(head="1:3", clamp="uniform", steps=(0, 2000)) == "clamp 1:3 uniform 0..2000"
    assert intervene(head="1:3", clamp="none") == "clamp 1:3 none 0.."
    assert intervene(head="1:3", scale=1.23456789, steps=(0, 9)) == "scale 1:3 1.23456789 0..9"
    assert intervene(head="attention", scale=2) == "scale attention 2 0.."
    assert intervene(kick=0.1, at=300) == "kick 0.1 at 300"
    with refused("intervene", SpecError):
        intervene(parameter="a", freeze=(0, 5), kick=0.1)
    with refused("intervene", SpecError):
        intervene(head="1:3", clamp="none", scale=2.0)
    with refused("intervention", SpecError):
        intervene(head="attention", clamp="none")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            "expected freeze NAME A..B, clamp LAYER:HEAD PATTERN A..B, scale LAYER:HEAD FACTOR A..B,"
            " scale attention FACTOR A..B, or kick SIZE at STEP",
        ),
        ("freeze query", "expected freeze NAME A..B"),
        ("freeze query 5..5", r"expected steps A\.\.B with A < B"),
        ("clamp 0:0 previous 0..5", "expected one of the patterns previous_token, uniform, none, self, next_token"),
        ("scale 0:0 -2 0..5", "expected freeze NAME A..B"),
        ("scale 0 2 0..5", "expected freeze NAME A..B"),
        ("scale 0:0 1e999 0..5", "expected a scale with a finite factor"),
        ("kick 1e999 at 5", "expected a kick of a finite size"),
        ("scale attention 2 3..11", r"expected an intervention within the training's steps 0\.\.10"),
        ("kick 0 at 5", r"expected a kick \(noise added to the weights\) of a size > 0"),
        ("kick 0.1 at 10", r"expected an intervention within the training's steps 0\.\.10"),
        ("freeze query 3..11", r"expected an intervention within the training's steps 0\.\.10"),
        ("clamp 0:0 none 10..", r"expected an intervention within the training's steps 0\.\.10"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(text: str, message: str) -> None:
    with refused("intervention", SpecError):
        TrainingParameters.resolve({"n_steps": 10, "intervention": text})
