"""FIRST as Chiang & Cholak 2022 train it, scaled as their equation 2 says: log n multiplies the logits."""

from attnsweep.search_spaces import Sweep
from attnsweep.search_spaces.catalog import chiang_fig4


def sweep() -> Sweep:
    """Repeats the scaled half of `chiang_fig4` with logits times log n, where the authors scale the queries' input."""
    spec = chiang_fig4.sweep().fix({"attention_scale": "log_n_inv_sqrt_d"})
    return spec.but(
        name="chiang_fig4_logits",
        description="chiang_fig4 with the logits times log n",
        trials=4,
    )
