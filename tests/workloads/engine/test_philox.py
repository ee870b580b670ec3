"""Philox against the known-answer vectors published with Random123 (Salmon et al. 2011, kat_vectors)."""

import pytest
import torch

from attnsweep.workloads.engine.streams import philox_4x32

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def _words(text: str) -> list[torch.Tensor]:
    return [torch.tensor([int(word, 16)]) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = _words(counter)
    k0, k1 = _words(key)
    words = philox_4x32((c0, c1, c2, c3), (k0, k1))
    assert [word.item() for word in words] == [word.item() for word in _words(answer)]
