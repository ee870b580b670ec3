"""PARITY without training, as weights of the encoder.

Dimensions: 0, 1, 2 the symbol (0, 1, CLS), 3 i/n, 4 cos(i pi), 5 k/n for k 1s, 6 1/n, 7 I[i = k]/n, 8 the answer s; 9
is unused and makes the width divisible by two heads.
Source: Chiang & Cholak 2022, section 3.1.
"""

from attnsweep.reproduction.chiang.exact_encoders import blank_encoder, set_attention, set_feed_forward
from attnsweep.workloads.formal_languages.encoder import Encoder

_ZERO, _ONE, _CLS, _POSITION, _COSINE, _ONES, _UNIT, _IS_COUNT, _ANSWER = range(9)


def exact_parity(strength: float = 1.0, attention_scale: str = "inv_sqrt_d", counting: float = 1.0) -> Encoder:
    """Two layers: the first counts the 1s and marks position k, and the second tells CLS whether k is odd.

    In layer 1 all tokens attend uniformly, and the feed-forward part computes
    I[i = k]/n = (relu(k-i-1) - 2 relu(k-i) + relu(k-i+1)) / n. In layer 2 CLS attends to odd positions with one head
    and to even positions with the other. For even n, s = (-1)^(k+1) 2 tanh(c) / n^2. For odd n, with Z1 = (n-1)/2 e^c +
    (n+1)/2 e^-c and Z2 = (n+1)/2 e^c + (n-1)/2 e^-c, s = -(n-1) sinh(2c) / (n Z1 Z2) for even k and +(n+1) sinh(2c) /
    (n Z1 Z2) for odd k; the appendix misprints the last sinh as cosh. c is `strength` (times log n if the scale has
    that factor).

    Args:
        strength: c.
        attention_scale: The name of a scale; see `attention_scale.query_factors`.
        counting: The weight with which layer 1 counts, entry (6, 2) of W_V of head 1; 1 is correct (figure 3).
    """
    encoder = blank_encoder(2, 2, 10, 3, (_POSITION, _COSINE), attention_scale)
    set_attention(encoder, 0, 0, query={}, key={}, values={_ONES: {_ONE: counting}, _UNIT: {_CLS: 1.0}})
    first = {(_ONES, unit): 1.0 for unit in range(3)} | {(_POSITION, unit): -1.0 for unit in range(3)}
    first |= {(_UNIT, 0): -1.0, (_UNIT, 2): 1.0}
    set_feed_forward(encoder, 0, first, {(unit, _IS_COUNT): weight for unit, weight in enumerate((1.0, -2.0, 1.0))})
    for head, sign in enumerate((1.0, -1.0)):
        values = {_ANSWER: {_IS_COUNT: sign}}
        set_attention(encoder, 1, head, query={_CLS: strength}, key={_COSINE: -sign}, values=values)
    encoder.answer_weight_D1.data[_ANSWER] = 1.0
    return encoder
