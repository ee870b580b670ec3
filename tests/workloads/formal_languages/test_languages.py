"""Languages: membership, positions, and kinds of token."""

import pytest
import torch

from attnsweep.workloads.formal_languages.languages import LANGUAGES
from tests.workloads.formal_languages.strings import every_string, members

MEMBERSHIP = {"first": lambda word: word.startswith("1"), "parity": lambda word: word.count("1") % 2 == 1}


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_members_are_those_of_the_definition(name: str, length: int) -> None:
    text = every_string(length)
    words = ["".join(str(int(bit)) for bit in row) for row in text]
    assert members(name, text).tolist() == [MEMBERSHIP[name](word) for word in words]


def test_the_features_are_those_of_the_paper() -> None:
    first = LANGUAGES["first"].position_features(torch.arange(4), torch.tensor(4))
    assert first[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]
    parity = LANGUAGES["parity"].position_features(torch.arange(4), torch.tensor(4))
    assert parity.T.tolist() == [[0.0, 0.25, 0.5, 0.75], [1.0, -1.0, 1.0, -1.0]]


@pytest.mark.parametrize("name", [name for name, language in LANGUAGES.items() if language.n_marked_positions])
def test_the_odds_are_the_share_of_members_with_as_many_ones(name: str) -> None:
    text = every_string(5)
    n_ones = text.sum(-1)
    odds = LANGUAGES[name].odds_given_ones(n_ones, torch.tensor(5))
    assert odds is not None
    for count in range(6):
        alike = n_ones == count
        torch.testing.assert_close(odds[alike].mean(), members(name, text)[alike].double().mean())
