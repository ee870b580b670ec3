"""Verdicts as a table: what it refuses, what it says, and that the documents have the tables of the code."""

from typing import ClassVar

import numpy as np
import pytest

from attnsweep import AtLevel, Evidence, Rule, VerdictTable
from attnsweep.workloads.category_pairs import CategoryPairs, CategoryPairsParameters
from attnsweep.workloads.category_pairs.outcomes import FULL, REDUCED
from attnsweep.workloads.diagnostics.verdicts import check_each_can_occur
from attnsweep.workloads.errors import LabelError
from attnsweep.workloads.formal_languages.workload import VERDICTS as OF_LANGUAGES
from attnsweep.workloads.gpt.workload import VERDICTS as OF_GPTS
from attnsweep.workloads.translation.workload import VERDICTS as OF_TRANSLATORS
from attnsweep.workloads.vocabulary import Outcome
from tests.across.documents import DOCUMENTS


def _rule(outcome: str, *details: str) -> Rule:
    return Rule(
        outcome=outcome,
        when=lambda _, evidence: evidence.metrics["held"] > 0,
        says="held",
        details=details or ("",),
        which=(lambda evidence: np.where(evidence.metrics["held"] > 1, *details[::-1])) if len(details) > 1 else None,
    )


def _judged(table: VerdictTable, loss: list[float], **levels: float) -> list[tuple[str, str]]:
    loss_LP = np.array([loss])
    evidence = Evidence(
        steps=np.arange(len(loss)),
        metrics={"eval_loss": loss_LP, "held": np.array([[0.0, 1.0, 2.0]])},
        levels={name: np.array([level]) for name, level in levels.items()},
    )
    verdicts = table.judge(None, evidence)
    return list(zip(verdicts.outcome[0].tolist(), verdicts.detail[0].tolist(), strict=True))


def test_a_table_knows_its_labels_before_it_judges() -> None:
    with pytest.raises(LabelError, match=r"\('marginal', 'mean'\) in two"):
        VerdictTable((_rule("marginal", "mean"), AtLevel(outcome="marginal", level="mean", says="")))


def test_the_first_row_that_holds_decides() -> None:
    zero = AtLevel(
        outcome="degenerate_zero", level="zero", says="", when=lambda _, evidence: evidence.metrics["held"] > 1
    )
    mean = AtLevel(outcome="marginal", level="mean", says="")
    levels = {"zero": 1.0, "mean": 0.5, "solved": 0.1}
    runaway = _rule("runaway", "near", "far")
    first = VerdictTable((Rule.diverged(), Rule.solved(), zero, runaway, mean))
    assert _judged(first, [1.0, 1.0, 1.0], **levels) == [
        ("plateau", ""),
        ("runaway", "near"),
        ("degenerate_zero", "zero"),
    ]
    assert _judged(first, [0.5, 0.5, 0.5], **levels) == [("marginal", "mean")] * 3
    assert _judged(first, [0.05, 0.05, 9.0], **levels) == [("solved", ""), ("solved", ""), ("diverged", "")]
    last = VerdictTable((runaway, mean, zero))
    assert _judged(last, [0.5, 0.5, 1.0], **levels) == [("marginal", "mean"), ("runaway", "near"), ("runaway", "far")]
    assert _judged(first, [1.0, 1.0, 1.0], **levels | {"mean": 0.995})[2] == ("degenerate_zero", "zero or mean")


@pytest.mark.parametrize(
    ("page", "table"),
    [
        ("outcomes.md", REDUCED),
        ("outcomes.md", FULL),
        ("outcomes.md", OF_LANGUAGES),
        ("outcomes.md", OF_GPTS),
        ("translation.md", OF_TRANSLATORS),
    ],
)
def test_a_page_has_the_table_that_the_code_judges_by(page: str, table: VerdictTable) -> None:
    assert table.markdown() in DOCUMENTS[page], f"put this into docs/{page}:\n{table.markdown()}"


class Judged(CategoryPairs):
    """Two rows by text, of which `later` is the second."""

    outcomes: ClassVar[dict[str, Outcome]] = {"memorized": Outcome("knows its pairs only")}
    later = "eval_loss < 0.5"

    def verdicts(self, parameters: CategoryPairsParameters) -> VerdictTable:
        del parameters
        solved = Rule(outcome="solved", when="eval_loss <= 0.5")
        return VerdictTable((solved, Rule(outcome="memorized", when=self.later)))


def test_an_outcome_that_cannot_occur_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workload, parameters = Judged(), CategoryPairsParameters()
    assert workload.verdicts(parameters).rows[0].says == "eval_loss <= 0.5"
    with pytest.raises(
        LabelError,
        match=r"the outcome memorized of category_pairs: got 'eval_loss < 0.5', expected a condition that can hold"
        r" where the condition of the earlier row solved \(eval_loss <= 0.5\) does not hold;"
        r" exchange the two rows or change one condition",
    ):
        check_each_can_occur(workload, parameters)
    monkeypatch.setattr(Judged, "later", "eval_loss < 0.6")
    check_each_can_occur(workload, parameters)
    monkeypatch.setattr(Judged, "outcomes", Judged.outcomes | {"copied": Outcome("repeats its input")})
    with pytest.raises(LabelError, match=r"category_pairs.outcomes: got 'copied', expected an outcome that a row of"):
        check_each_can_occur(workload, parameters)
