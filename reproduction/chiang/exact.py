"""The answers of encoders with hand-set weights to random strings. Nothing is trained: there is no sweep.

Axes: B string, N position in a string.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

from attnsweep.workloads.formal_languages.encoder import Encoder
from attnsweep.workloads.formal_languages.languages import LANGUAGES, Tokens, tokenize

_ROOM = 4_000_000
"""The largest number of attention logits that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Answers:
    """An encoder's answers to random strings of one length.

    Attributes:
        bits_B: The cross-entropy of each string.
        is_right_B: Whether the answer is right.
    """

    bits_B: Tensor
    is_right_B: Tensor

    @property
    def mean_bits(self) -> float:
        """The mean cross-entropy over the strings, in bits."""
        return float(self.bits_B.mean())

    @property
    def standard_error_bits(self) -> float:
        """The standard error of the mean over random strings."""
        return float(self.bits_B.std(correction=1)) / math.sqrt(self.bits_B.shape[0])

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.is_right_B.double().mean())


def answers(encoder: Encoder, language: str, length: int, n_strings: int) -> Answers:
    """Computes an encoder's answers to uniformly random strings. The strings depend on the length only, so every call
    draws the same.

    Args:
        encoder: The encoder, in double precision.
        language: The language's name.
        length: The length of the strings.
        n_strings: The number B of strings.
    """
    spec = LANGUAGES[language]
    representation = "positions" if spec.n_marked_positions is None else "kinds"
    text_BN = torch.rand(n_strings, length, generator=torch.Generator().manual_seed(length)) < 0.5
    n_logits = encoder.shape.n_heads * ((length + 1) ** 2 if representation == "positions" else 16)
    logit_B = torch.cat(
        [logits(encoder, language, part, representation) for part in torch.split(text_BN, max(_ROOM // n_logits, 1))]
    )
    is_in_B = spec.contains(text_BN, torch.full((n_strings,), length))
    signed_B = torch.where(is_in_B, logit_B, -logit_B)
    return Answers(bits_B=softplus(-signed_B) / math.log(2.0), is_right_B=signed_B > 0)


def logits(encoder: Encoder, language: str, text_BN: Tensor, representation: str) -> Tensor:
    """Returns an encoder's logits (B,) for strings of one length.

    Args:
        encoder: The encoder, in double precision.
        language: The language's name.
        text_BN: The bits of the strings.
        representation: `positions` or `kinds` (`tokens.tokenize`).
    """
    length_B = torch.full(text_BN.shape[:1], text_BN.shape[1])
    tokens = tokenize(LANGUAGES[language], text_BN, length_B, representation)
    with torch.no_grad():
        logit_B: Tensor = encoder(Tokens(tokens.feature_BTF, tokens.log_count_BT, tokens.log_n[0]))
    return logit_B
