"""The scales that `attention_scale` names: factors of the queries, some depending on the string's length."""

from dataclasses import dataclass

ATTENTION_SCALES = ("inv_sqrt_d", "one", "log_n_inv_sqrt_d", "log_n_query_inv_sqrt_d")


@dataclass(frozen=True, slots=True)
class QueryFactors:
    """A query is scale (W a + b), and either term may be multiplied by log n, where n = |w| + 1 is the positions."""

    scale: float
    weight_has_log_n: bool
    bias_has_log_n: bool


def query_factors(attention_scale: str, d_head: int) -> QueryFactors:
    """The factors of a scale by its name; d is the width of a head's key.

    - `inv_sqrt_d`: logits / sqrt(d), the usual scale.
    - `one`: logits unscaled.
    - `log_n_inv_sqrt_d`: logits log(n) / sqrt(d) (Chiang & Cholak 2022, equation 2).
    - `log_n_query_inv_sqrt_d`: as in the authors' code, the layer's input is multiplied by log(n) before it is
      projected to queries, so the queries' bias is not multiplied. Without bias it equals the previous scale. For a
      string w, code and paper both take n = |w| + 1: they count CLS.
    """
    scale = 1.0 if attention_scale == "one" else d_head**-0.5
    return QueryFactors(scale, attention_scale.startswith("log_n"), attention_scale == "log_n_inv_sqrt_d")
