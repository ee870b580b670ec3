"""FIRST without training, as weights of the encoder: the solution, and a one-layer version that fails on long strings.

Dimensions: 0, 1, 2 the symbol (0, 1, CLS), 3 I[i = 1], 4 I[i = 1 and w_1 = 1], 5 the answer s.
Source: Chiang & Cholak 2022, sections 3.2 and 5.2.
"""

from attnsweep.reproduction.chiang.exact_encoders import blank_encoder, set_attention, set_feed_forward
from attnsweep.workloads.formal_languages.encoder import Encoder

_ZERO, _ONE, _CLS, _FIRST, _FIRST_IS_ONE, _ANSWER = range(6)
_POSITION = (_FIRST,)


def exact_first(strength: float = 1.0, attention_scale: str = "inv_sqrt_d") -> Encoder:
    """Two layers: the first marks a 1 at position 1, and in the second CLS reads the mark.

    s = e^c / (e^c + n - 1) (I[w_1 = 1] - 1/2), where c is `strength` (times log n if the scale has that factor).
    """
    encoder = blank_encoder(2, 1, 6, 1, _POSITION, attention_scale)
    set_feed_forward(encoder, 0, {(_ZERO, 0): -1.0, (_CLS, 0): -1.0, (_FIRST, 0): 1.0}, {(0, _FIRST_IS_ONE): 1.0})
    values = {_FIRST_IS_ONE: 1.0, _FIRST: -0.5}
    set_attention(encoder, 1, 0, query={_CLS: strength}, key={_FIRST: 1.0}, values={_ANSWER: values})
    encoder.answer_weight_D1.data[_ANSWER] = 1.0
    return encoder


def flawed_first(strength: float = 1.0, attention_scale: str = "inv_sqrt_d") -> Encoder:
    """One layer: CLS attends to position 1 more than to others, but in long strings the others outweigh it.

    s = (e^c - 1) / (e^c + n - 1) (I[w_1 = 1] - 1/2) + (k - n/2) / (e^c + n - 1), where k is the number of 1s.
    """
    encoder = blank_encoder(1, 1, 6, 1, _POSITION, attention_scale)
    values = {_ZERO: -0.5, _ONE: 0.5, _CLS: -0.5}
    set_attention(encoder, 0, 0, query={_CLS: strength}, key={_FIRST: 1.0}, values={_ANSWER: values})
    encoder.answer_weight_D1.data[_ANSWER] = 1.0
    return encoder
