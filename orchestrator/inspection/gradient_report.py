"""The findings of gradient checks, one row each, printed or as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console

from attnsweep.orchestrator.analysis.answer import Record
from attnsweep.workloads.gradients.check import Finding

_OF_ANY_WORKLOAD = {"fused", "blocks", "compiled", "differences"}
_MOST_CHARACTERS = 60
"""The longest parameter name in a printed row; messages and JSON have the names in full."""
_UNJUDGED = ("kink", "rounding", "skipped")


@dataclass(frozen=True, kw_only=True)
class GradientReport(Record):
    """The findings of gradient checks of a workload or a sweep, and the seconds that the checks took.

    Attributes:
        subject: The workload and its parameters, or the sweep.
        findings: One per row.
        seconds: The time spent, by activity.
    """

    json_keys = ("subject", "clean=is_clean", "verdicts", "seconds", "checks=findings")

    subject: str
    findings: Sequence[Finding]
    seconds: Mapping[str, float]

    @property
    def failed(self) -> list[Finding]:
        """The findings that show a fault."""
        return [finding for finding in self.findings if finding.verdict == "fails"]

    @property
    def is_clean(self) -> bool:
        """Whether no gradient check failed."""
        return not self.failed

    @property
    def verdicts(self) -> Counter[str]:
        """The number of findings for each verdict, such as `fails`."""
        return Counter(finding.verdict for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line: the number of findings for each verdict, and the largest error that passed for each kind of
        check."""
        largest: dict[str, float] = {}
        for finding in self.findings:
            if finding.verdict == "holds" and finding.error is not None:
                largest[finding.check] = max(finding.error, largest.get(finding.check, 0.0))
        words = ", ".join(f"{verdict} {n}" for verdict, n in self.verdicts.most_common())
        seconds = ", ".join(f"{name} {spent:.1f} s" for name, spent in self.seconds.items())
        return f"{words}; largest errors: {', '.join(f'{k} {v:.0e}' for k, v in largest.items()) or 'none'}; {seconds}"

    def print(self, console: Console) -> None:
        """Prints a row for each gradient check, then the messages of the failed ones."""
        width = min(max([len(finding.parameter) for finding in self.findings] + [len("parameter")]), _MOST_CHARACTERS)
        lines = [self.subject, f" verdict  check           {'parameter':{width}}    error  threshold  compared with"]
        for where, findings in groupby(self.findings, key=lambda finding: finding.where):
            lines += [f"at {where}:", *(_row(finding, width) for finding in findings)]
        lines += [
            f"- {finding.check} of {finding.parameter}, {finding.where}: {finding.message}" for finding in self.failed
        ]
        if not {finding.check for finding in self.findings} - _OF_ANY_WORKLOAD:
            lines.append("this workload declares no identities; with some, a wrong mask or norm is seen too")
        for line in (*lines, self.summary):
            console.print(line, soft_wrap=True, markup=False)


def _row(finding: Finding, width: int) -> str:
    verdict = finding.verdict.upper() if finding.verdict == "fails" else finding.verdict
    error = "        " if finding.error is None else f"{finding.error:8.1e}"
    text = finding.message if finding.verdict in _UNJUDGED else finding.name
    parameter = finding.parameter if len(finding.parameter) <= width else f"{finding.parameter[: width - 3]}..."
    return f" {verdict:8} {finding.check:15} {parameter:{width}} {error}      {finding.threshold:.0e}  {text}"
