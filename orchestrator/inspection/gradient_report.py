"""The findings of checks of gradients, one row each, on the screen and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.workloads.gradients.finding import Finding

_OF_ANY_WORKLOAD = {"fused", "blocks", "compiled", "differences"}
_MOST_CHARACTERS = 60
"""Of a row's parameters; messages and JSON have them in full."""
_UNJUDGED = ("kink", "rounding", "skipped")


@dataclass(frozen=True, kw_only=True)
class GradientReport(Record):
    """What the checks found.

    Attributes:
        subject: The workload and its parameters, or the sweep.
        findings: One per row.
        seconds: By what they were spent on.
    """

    json_keys = ("subject", "clean=is_clean", "verdicts", "seconds", "checks=findings")

    subject: str
    findings: Sequence[Finding]
    seconds: Mapping[str, float]

    @property
    def failed(self) -> list[Finding]:
        """The rows that show a fault."""
        return [each for each in self.findings if each.verdict == "fails"]

    @property
    def is_clean(self) -> bool:
        """Whether no row shows a fault."""
        return not self.failed

    @property
    def verdicts(self) -> Counter[str]:
        """How many rows have each verdict."""
        return Counter(each.verdict for each in self.findings)

    @property
    def summary(self) -> str:
        """The counts of all verdicts, and the largest error that passed of each kind of check, in one line."""
        largest: dict[str, float] = {}
        for each in self.findings:
            if each.verdict == "holds" and each.error is not None:
                largest[each.check] = max(each.error, largest.get(each.check, 0.0))
        words = ", ".join(f"{verdict} {n}" for verdict, n in self.verdicts.most_common())
        seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.seconds.items())
        return f"{words}; largest errors: {', '.join(f'{k} {v:.0e}' for k, v in largest.items()) or 'none'}; {seconds}"

    def print(self, console: Console) -> None:
        """Prints a row for each check, then what failures mean."""
        width = min(max([len(each.parameter) for each in self.findings] + [len("parameter")]), _MOST_CHARACTERS)
        lines = [self.subject, f" verdict  check           {'parameter':{width}}    error  threshold  compared with"]
        for where, findings in groupby(self.findings, key=lambda each: each.where):
            lines += [f"at {where}:", *(_row(each, width) for each in findings)]
        lines += [f"- {each.check} of {each.parameter}, {each.where}: {each.message}" for each in self.failed]
        if not {each.check for each in self.findings} - _OF_ANY_WORKLOAD:
            lines.append("this workload declares no identities; with some, a wrong mask or norm is seen too")
        for line in (*lines, self.summary):
            console.print(line, soft_wrap=True, markup=False)


def _row(each: Finding, width: int) -> str:
    verdict = each.verdict.upper() if each.verdict == "fails" else each.verdict
    error = "        " if each.error is None else f"{each.error:8.1e}"
    said = each.message if each.verdict in _UNJUDGED else each.name
    parameter = each.parameter if len(each.parameter) <= width else f"{each.parameter[: width - 3]}..."
    return f" {verdict:8} {each.check:15} {parameter:{width}} {error}      {each.threshold:.0e}  {said}"
