"""Planted faults in claims that decide themselves: what counts as evidence, which rows count, when it ends."""

from tests.planted.fault import Fault

_EVIDENCE = "orchestrator/analysis/verdicts/evidence.py"
_VERDICT = "orchestrator/analysis/verdicts/verdict.py"
_OF_EVIDENCE = "tests/orchestrator/analysis/verdicts/test_evidence.py"
_OF_VERDICTS = "tests/orchestrator/analysis/verdicts/test_verdict.py"
_GROWN = "tests/orchestrator/running/test_verifying.py::test_a_claim_is_decided_in_a_sweep_that_grows"

FAULTS_OF_CLAIMS = (
    Fault(
        "a prior that is cut off and not scaled up again, or the other way round",
        _EVIDENCE,
        " - np.log(special.betainc(0.5, 0.5, 1 - rate))",
        " - np.log(special.betainc(0.5, 0.5, rate))",
        (f"{_OF_EVIDENCE}::test_evidence_for_a_rate_averages_one_at_the_bound_and_less_beyond",),
    ),
    Fault(
        "two rates compared with their mean, whatever the factor is",
        _EVIDENCE,
        "    pairs = ((lower_P, factor * line_P), (upper_P, line_P))\n",
        "    line_P = both_P / (1 + factor)\n    pairs = ((lower_P, factor * line_P), (upper_P, line_P))\n",
        (f"{_OF_EVIDENCE}::test_evidence_for_an_order_of_rates_averages_at_most_one_where_it_is_false",),
    ),
    Fault(
        "a training in which it has not come by the end as one in which it never comes",
        _EVIDENCE,
        "np.sort(lower_R), np.sort(np.minimum(upper_R, np.nextafter(last, np.inf)))",
        "np.sort(lower_R), np.sort(upper_R)",
        (f"{_OF_EVIDENCE}::test_what_has_not_come_by_the_end_counts_against_the_statement",),
    ),
    Fault(
        "medians that are tried at the best step",
        _EVIDENCE,
        "np.min(above(n_lower_C, lower_R.size, 0.5)",
        "np.max(above(n_lower_C, lower_R.size, 0.5)",
        (f"{_OF_EVIDENCE}::test_evidence_for_an_order_of_medians_is_the_least_over_all_medians_without_it",),
    ),
    Fault(
        "a claim that one of its statements supports",
        _VERDICT,
        "Evidence(min(statement.pro for statement in evidence), mean)",
        "Evidence(max(statement.pro for statement in evidence), mean)",
        (f"{_OF_VERDICTS}::test_all_statements_must_be_supported_and_evidence_against_any_refutes",),
    ),
    Fault(
        "the largest evidence against any statement, uncorrected",
        _VERDICT,
        "np.log(np.mean(np.exp(contra - contra.max())))",
        "0.0",
        (f"{_OF_VERDICTS}::test_all_statements_must_be_supported_and_evidence_against_any_refutes",),
    ),
    Fault(
        "a verdict that later rows change",
        _VERDICT,
        '        if n > n_ended or decision != "undecided":\n',
        "        if n > n_ended:\n",
        (f"{_OF_VERDICTS}::test_the_first_look_that_decides_is_the_verdict",),
    ),
    Fault(
        "failed trainings that count",
        _VERDICT,
        "    judged = [row for row in rows if _is_judged(row)]\n",
        "    judged = rows\n",
        (f"{_OF_VERDICTS}::test_failed_trainings_count_as_if_they_had_not_been_drawn",),
    ),
    Fault(
        "a look at trainings of which an earlier one is missing",
        _VERDICT,
        "[rows[at] for at in takewhile(rows.__contains__, count())]",
        "[rows[at] for at in sorted(rows)]",
        (f"{_OF_VERDICTS}::test_a_look_needs_the_first_trainings_of_every_group",),
    ),
    Fault(
        "a directory that takes another claim",
        "orchestrator/running/verifying.py",
        "    if not stored.says_the_same(given):\n",
        "    if False:\n",
        (_GROWN,),
    ),
    Fault(
        "a decided claim that goes on",
        "orchestrator/running/verifying.py",
        'found.decision != "undecided" or found.n_failed',
        "found.n_failed",
        (_GROWN,),
    ),
)
