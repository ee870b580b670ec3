"""The tables of what needs what, read from a tiny sweep."""

from pathlib import Path

import pytest

from attnsweep.reproduction.studies import needs
from attnsweep.search_spaces import Categorical
from attnsweep.search_spaces.loading import load_sweep
from tests.orchestrator.trained_sweep import trained_sweep


@pytest.mark.slow
def test_a_row_for_each_intervention_and_what_is_reached(tmp_path: Path) -> None:
    small = {"n_steps": 40, "n_context": 12}
    spec = load_sweep("markov_needs")
    texts = (None, "clamp 1:0 uniform 0..", "clamp 0:0 previous_token 0..")
    spec = spec.but(space={**spec.space, "intervention": Categorical(texts)})
    sweep = trained_sweep(tmp_path / "s", spec.fix(small).but(trials=3, replicates=3, certified_share=0.0), pack_size=9)
    comparison = needs.compare("title", ("unigram", "loss below zero", "bigram"), sweep, tmp_path)
    ((_, (header, without, *lines)),) = comparison.tables
    assert header[0] == "intervention"
    assert without[0] == "none"
    assert [line[0] for line in lines] == sorted(texts[1:], key=str)
    assert " of 3, at " in without[1]
    assert all(cell == "-" or " of 3" in cell for line in (without, *lines) for cell in line[1:])
    names = [row.name for row in comparison.rows]
    assert len({*names}) == len(names) > 0
    comparison.to_json()
