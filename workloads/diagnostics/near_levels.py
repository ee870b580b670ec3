"""Whether a workload's labels tell its reference levels apart. Axes: L lane, P probe."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from attnsweep.workloads.diagnostics.outcomes import AT_LEVEL, OR
from attnsweep.workloads.engine.contract import Evidence, Workload
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.errors import LabelError


def check_near_levels(workload: Workload[Any], parameters: Any, evidence: Evidence) -> None:
    """Refuses a `judge` that names one of two levels where the loss does not tell them apart.

    Two levels are near if they differ by at most twice `AT_LEVEL`: a loss between them is at both. At such a loss,
    `standing` names both.

    Args:
        workload: The problem.
        parameters: Those of the first lane.
        evidence: Measurements of L trainings. Their labels are asked for anew, at losses equal to their levels.

    Raises:
        LabelError: If a label at one of two near levels has the name of one of them alone.
    """
    levels = {name: level_L for name, level_L in evidence.levels.items() if name != "solved"}
    for one, other in combinations(levels, 2):
        size_L = np.maximum(np.abs(levels[one]), np.abs(levels[other]))
        near_L = np.abs(levels[one] - levels[other]) <= 2.0 * AT_LEVEL * size_L
        for level_L in (levels[one], levels[other]) if near_L.any() else ():
            loss_LP = np.where(near_L, level_L, np.nan)[:, None] + np.zeros_like(evidence.metrics["eval_loss"])
            at_level = replace(evidence, metrics=evidence.metrics | {"eval_loss": loss_LP})
            detail_L = judged(workload, parameters, at_level).detail[:, -1]
            if (wrong_L := near_L & ((detail_L == one) | (detail_L == other))).any():
                lane = int(wrong_L.argmax())
                raise LabelError(
                    f"{workload.name}.judge",
                    given=f"the detail {detail_L[lane]} at a loss of {level_L[lane]:.4g}",
                    expected=f"one that names both levels, such as {one}{OR}{other}: {one} is {levels[one][lane]:.4g}"
                    f" and {other} is {levels[other][lane]:.4g}, nearer than the loss can tell ({2 * AT_LEVEL:.0%})",
                    fix="judge with `judge_by_levels` or `standing`; if more than the loss tells them apart, say it in"
                    f" the detail, such as `{one} by accuracy`",
                )
