"""The losses of simple predictors of q*(X_{i-1}, X_i), for uniform categories. Axes: N category.

With row means r, column means c and grand mean g of q* (rows: the previous category, columns: the current one):

    zero      E Y^2                             the predictor 0
    mean      mean (q* - g)^2 = Var Y           E[Y]
    cur       mean (q* - c)^2                   E[Y | X_i]
    prev      mean (q* - r)^2                   E[Y | X_{i-1}]
    additive  mean (q* - r - c + g)^2           the best f(X_{i-1}) + h(X_i)
    unordered mean ((q* - q*^t) / 2)^2          E[Y | {X_{i-1}, X_i}]

`cur` and `prev` differ from `mean` by about 1/N only: tell them apart by function match, not by the loss alone.
Derivation: docs/theory.md, reference levels.
"""

from torch import Tensor

MATCHED = ("mean", "cur", "prev", "additive")
"""The predictors with which a training's answers are compared (docs/outcomes.md)."""
LEVELS = ("zero", *MATCHED, "unordered")

_SOLVED_SHARE = 1e-2
"""A training is solved if its loss is below this share of Var Y (docs/outcomes.md)."""


def reference_predictors(target_NN: Tensor) -> dict[str, Tensor]:
    """Returns each reference predictor's answers as a table (N, N): previous category (row), current category
    (column).
    """
    grand = target_NN.mean()
    prev = target_NN.mean(1, keepdim=True)
    cur = target_NN.mean(0, keepdim=True)
    zero = target_NN.new_zeros(())
    answers = {"zero": zero, "mean": grand, "cur": cur, "prev": prev, "additive": prev + cur - grand}
    answers["unordered"] = (target_NN + target_NN.T) / 2
    return {name: answer.expand_as(target_NN) for name, answer in answers.items()}


def reference_levels(target_NN: Tensor) -> dict[str, Tensor]:
    """Returns the mean squared errors of the reference predictors, and the level `solved`, 1% of Var Y."""
    levels = {name: (target_NN - answer).square().mean() for name, answer in reference_predictors(target_NN).items()}
    return levels | {"solved": _SOLVED_SHARE * levels["mean"]}
