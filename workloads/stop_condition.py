"""`stop_when`: a bound on a metric, at which a training ends. Imports no torch."""

import operator
import re
from dataclasses import dataclass
from typing import Any, Self

from attnsweep.workloads.errors import SpecError

_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
FORM = rf"\s*([^\s<>=]+)\s*(>=|<=|>|<)\s*({_NUMBER})\s*"
WORDS = 'a metric, a sign and a number, such as "eval_loss <= 0.01"; signs are >=, <=, > and <'


@dataclass(frozen=True, slots=True)
class StopCondition:
    """A bound on a metric.

    Attributes:
        metric: A metric that probes measure, such as `eval_loss`.
        sign: One of `>=`, `<=`, `>`, `<`.
        bound: The number on its right.
    """

    metric: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a text of the form `FORM`.

        Raises:
            SpecError: If it has another.
        """
        found = re.fullmatch(FORM, text)
        if found is None:
            raise SpecError("stop_when", given=text, expected=WORDS, fix="correct it")
        return cls(found[1], found[2], float(found[3]))

    def holds(self, values: Any) -> Any:
        """Whether values of the metric pass the bound; NaN never does."""
        return _SIGNS[self.sign](values, self.bound)
