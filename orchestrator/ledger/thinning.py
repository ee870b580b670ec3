"""Thins curves to fewer probes. A replay can compute the removed probes again."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def thinned(curves: pa.Table, every: int) -> pa.Table:
    """Thins curves: returns every k-th probe of each curve, with the first and the last.

    The probes are counted from the start, so that trainings of different lengths keep the same steps, and medians over
    trainings can still be computed.

    Args:
        curves: Rows of `curves` in their order; each curve must be complete.
        every: k, the number of probes from one that stays to the next; 1 keeps all.
    """
    return curves if every == 1 or not curves.num_rows else curves.filter(pa.array(_stays(curves, every)))


def n_staying(lengths: NDArray[np.int64], every: int) -> int:
    """Returns how many rows `thinned` keeps of curves with the given numbers of probes."""
    return int((1 + (lengths - 1) // every + ((lengths - 1) % every > 0)).sum())


def _stays(curves: pa.Table, every: int) -> NDArray[np.bool_]:
    metric = curves["metric"].combine_chunks()
    columns = (curves["trial"].to_numpy(), curves["replicate"].to_numpy(), np.asarray(metric.indices))
    begins = np.ones(curves.num_rows, np.bool_)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    place = np.arange(curves.num_rows)
    rank = place - np.maximum.accumulate(np.where(begins, place, 0))
    ends = np.append(begins[1:], True)
    stays: NDArray[np.bool_] = (rank % every == 0) | ends
    return stays
