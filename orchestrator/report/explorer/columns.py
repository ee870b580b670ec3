"""Columns of numbers as JSON: the bytes of a typed array in base64."""

import base64
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

JsonColumn: TypeAlias = dict[str, str]
"""`type`: as NumPy writes it, little-endian; `data`: the bytes in base64."""

_SMALLEST, _LARGEST = 1e-37, 1e38
_EXACT = 2**24
"""Single precision holds every whole number up to this one."""


def counts(values: NDArray[np.int64]) -> JsonColumn:
    """Numbers from 0 to 2**32 - 1, in the smallest type that holds them."""
    highest = int(values.max(initial=0))
    kind = next(kind for kind in ("u1", "u2", "u4") if highest < 256 ** int(kind[1]))
    return _packed(values, kind)


def measures(values: NDArray[np.float64]) -> JsonColumn:
    """Any numbers, NaN for null: in single precision where that keeps six digits of each, else in double."""
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    whole = bool((np.mod(sizes, 1) == 0).all())
    fits = not len(sizes) or (sizes.min() > _SMALLEST and sizes.max() < (_EXACT if whole else _LARGEST))
    return _packed(values, "f4" if fits else "f8")


def unsigned_bytes(values: NDArray[np.float64]) -> JsonColumn:
    """Whole numbers from 0 to 255, in the order of their rows."""
    return _packed(values, "u1")


def signed_bytes(values: NDArray[np.float64]) -> JsonColumn:
    """Whole numbers from -127 to 127, in the order of their rows."""
    return _packed(values, "i1")


def coded(values: Sequence[object], known: Sequence[object]) -> tuple[list[object], NDArray[np.int64]]:
    """The distinct values, `known` ones first and in that order, and the place of each value among them."""
    # True == 1 in Python, but not to a reader.
    keys = [(type(value), value) for value in values]
    present = dict.fromkeys(keys)
    first = {(type(value), value): None for value in known if (type(value), value) in present}
    order = {key: at for at, key in enumerate({**first, **present})}
    return [value for _, value in order], np.array([order[key] for key in keys], dtype=np.int64)


def _packed(values: NDArray[np.int64] | NDArray[np.float64], kind: str) -> JsonColumn:
    return {"type": kind, "data": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}
