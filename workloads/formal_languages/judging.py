"""The outcome of a training on a formal language. Axes: L lane, P probe."""

from attnsweep.workloads.diagnostics import outcomes
from attnsweep.workloads.engine.contract import Evidence, Verdicts

SOLVED_BITS = 0.05
"""A solved training errs on no string of the evaluation batch, at a cross-entropy below this."""
CONSTANT_LOGIT_STD = 1e-2
"""Below this standard deviation over strings the logit does not depend on the string; it moves the cross-entropy by
less than 2e-5 bits."""


def judge_language(evidence: Evidence) -> Verdicts:
    """Names the state of each training at each probe, in the order of the cases below."""
    level = evidence.metrics["eval_loss"]
    levels = evidence.levels
    right = evidence.metrics["accuracy"] == 1.0
    at_reference = {name: outcomes.at_level(level, levels[name]) for name in ("constant", "count") if name in levels}
    return Verdicts.first_of(
        {
            "diverged": outcomes.has_diverged(level, levels["zero"]),
            "solved": right & (level < levels["solved"][:, None]),
            ("degenerate_zero", "constant"): evidence.metrics["logit_std"] < CONSTANT_LOGIT_STD,
            **{("marginal", name): holds for name, holds in at_reference.items()},
            ("plateau", "moving"): outcomes.is_moving(evidence.steps, level),
        }
    )
