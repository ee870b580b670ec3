"""Planted faults in claims that decide themselves: what counts as evidence, which rows count, when it ends."""

from tests.planted.fault import Fault

_EVIDENCE = "orchestrator/analysis/evidence.py"
_VERDICT = "orchestrator/analysis/verdict.py"
_OF_EVIDENCE = "tests/orchestrator/analysis/test_evidence.py"
_OF_VERDICTS = "tests/orchestrator/analysis/test_verdict.py"
_GROWN = "tests/orchestrator/running/test_verifying.py::test_a_claim_is_decided_in_a_sweep_that_grows"

_ROWS = "orchestrator/analysis/verdict_rows.py"
_OF_ROWS = "tests/orchestrator/analysis/test_verdict.py"
_VERIFYING = "tests/orchestrator/running/test_verifying.py"
_OF_ATLAS = "tests/orchestrator/report/test_atlas.py"

FAULTS_OF_CLAIMS = (
    Fault(
        "a budget below the first batch, which ends with an error",
        "orchestrator/running/verifying.py",
        "budget=max(budget or stored.budget, stored.batch * len(stored.groups))",
        "budget=budget or stored.budget",
        (_GROWN,),
    ),
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
        _ROWS,
        "    judged = [row for row in rows if is_judged(row)]\n",
        "    judged = rows\n",
        (f"{_OF_VERDICTS}::test_failed_trainings_count_as_if_they_had_not_been_drawn",),
    ),
    Fault(
        "a look at trainings of which an earlier one is missing",
        _ROWS,
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
    Fault(
        "a value from before a training diverged as that of its end",
        _ROWS,
        "where metric = ? and step >= n_steps group by all",
        "where metric = ? group by all",
        (f"{_OF_ROWS}::test_roles_and_values_are_told_from_the_ledger",),
    ),
    Fault(
        "a role of any layer as that of the layer that is named",
        _ROWS,
        "        if (history.layer, history.role) == (layer, quantity.name):\n",
        "        if history.role == quantity.name:\n",
        (f"{_OF_ROWS}::test_roles_and_values_are_told_from_the_ledger",),
    ),
    Fault(
        "a role that has not come as one that comes after the end, though the last probe could not confirm it",
        _ROWS,
        ' if quantity.what == "role" else ()\n',
        " if False else ()\n",
        (f"{_OF_ROWS}::test_a_role_counts_as_not_come_after_the_last_probe_that_a_later_one_confirms",),
    ),
    Fault(
        "what another process has added meanwhile added again",
        "orchestrator/running/verifying.py",
        "replicates=wanted, patience=patience)",
        "more_replicates=max(wanted - directory.stages[-1], 0), patience=patience)",
        (f"{_VERIFYING}::test_a_repeated_command_waits_for_the_one_that_holds_the_claim_and_adds_nothing_twice",),
    ),
    Fault(
        "a step held against the default of n_steps, which n_epochs replaces",
        "orchestrator/running/verifying.py",
        "workload.parameters.resolve({**claim.fixed, **claim.groups[quantity.group]}).n_steps",
        'workload.parameters.declared()["n_steps"].default',
        (f"{_VERIFYING}::test_a_step_is_held_against_what_the_parameters_amount_to",),
    ),
    Fault(
        "a link to a report that is not there",
        "orchestrator/report/atlas.py",
        " or not (place.path / name).is_file():\n",
        ":\n",
        (f"{_OF_ATLAS}::test_each_sweep_has_its_rates_and_each_claim_its_verdict",),
    ),
    Fault(
        "a refuted claim that is no failure of `make claims`",
        "reproduction/claims/__main__.py",
        '    return int(any(found.verdict == "refuted" for found in decided))\n',
        "    return 0\n",
        (
            "tests/reproduction/test_claims.py::test_all_claims_of_the_folder_are_decided_and_a_refuted_one_is_a_failure",
        ),
    ),
    Fault(
        "an option that a command is not to have",
        "orchestrator/cli/run_options.py",
        " for each in _OPTIONS if each[0] not in without]\n",
        " for each in _OPTIONS]\n",
        ("tests/orchestrator/cli/test_run_options.py::test_commands_that_train_sweeps_have_the_same_options",),
    ),
)
