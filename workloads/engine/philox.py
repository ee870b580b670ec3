"""The counter-based random number generator Philox4x32-10, on tensors.

Source: Salmon, Moraes, Dror & Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3" (SC'11), section 3.3.
A word is a 32-bit value held in an int64 tensor: PyTorch has no arithmetic on unsigned 32-bit integers.
"""

from torch import Tensor

Words = tuple[Tensor, Tensor, Tensor, Tensor]

_ROUNDS = 10
_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)


def philox_4x32(counter: Words, key: tuple[Tensor, Tensor]) -> Words:
    """Computes four random 32-bit words from a counter and a key, elementwise.

    Args:
        counter: Four tensors of words, of shapes that broadcast together.
        key: Two tensors of words that broadcast with the counter.

    Returns:
        Four tensors of words, of the broadcast shape.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


def _multiply(word: Tensor, constant: int) -> tuple[Tensor, Tensor]:
    # The 64-bit product may overflow into the sign bit. Shifting and masking still extract the right bits.
    product = word * constant
    return (product >> 32) & _MASK, product & _MASK
