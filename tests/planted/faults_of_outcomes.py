"""Planted faults in how trainings are judged."""

from tests.planted.fault import Fault

_OUTCOMES = "tests/workloads/diagnostics/test_outcomes.py"

FAULTS_OF_OUTCOMES = (
    Fault(
        "a text that lets in its own border where the other does not",
        "workloads/conditions.py",
        "is_closed = compare in (operator.ge, operator.le)",
        "is_closed = False",
        ("tests/workloads/test_conditions.py::test_what_implies_another_condition_holds_nowhere_else",),
    ),
    Fault(
        "outcomes that no row gives",
        "workloads/diagnostics/verdicts.py",
        "        if outcome not in table_outcomes:\n",
        "        if outcome in ():\n",
        ("tests/workloads/diagnostics/test_outcomes.py::test_an_outcome_that_cannot_occur_is_refused",),
    ),
    Fault(
        "hazard ratios of events without the first",
        "orchestrator/report/measured.py",
        "in (times | delays).items()]",
        "in [*times.items()][1:]]",
        ("tests/end_to_end/test_own_outcomes.py::test_the_report_is_about_an_outcome_of_ones_choice",),
    ),
    Fault(
        "a constant negative loss moves for ever",
        "workloads/diagnostics/outcomes.py",
        "_raised(loss[:, before], -MOVING_SHARE)",
        "(1.0 - MOVING_SHARE) * loss[:, before]",
        (f"{_OUTCOMES}::test_a_constant_loss_stands_still_and_is_not_overfit",),
    ),
    Fault(
        "no loss is at a negative level",
        "workloads/diagnostics/outcomes.py",
        "<= AT_LEVEL * np.abs(level[:, None])",
        "<= AT_LEVEL * level[:, None]",
        (f"{_OUTCOMES}::test_a_negative_loss_is_judged_by_its_size",),
    ),
    Fault(
        "a negative loss has diverged where it begins to rise",
        "workloads/diagnostics/outcomes.py",
        "_raised(zero_level[:, None], DIVERGED_FACTOR - 1.0)",
        "DIVERGED_FACTOR * zero_level[:, None]",
        (f"{_OUTCOMES}::test_a_negative_loss_is_judged_by_its_size",),
    ),
    Fault(
        "a gradient of a negative loss counts as none",
        "workloads/diagnostics/outcomes.py",
        'loss = np.abs(evidence.metrics["eval_loss"])',
        'loss = evidence.metrics["eval_loss"]',
        (f"{_OUTCOMES}::test_the_gradient_of_a_negative_loss_is_scaled_by_its_size",),
    ),
    Fault(
        "a table of motion that is not the labels'",
        "orchestrator/analysis/learning_curves.py",
        "::double * sign(before)) * before",
        "::double) * before",
        ("tests/orchestrator/analysis/test_learning_curves.py",),
    ),
    Fault(
        "a loss at two levels has the name of one",
        "workloads/diagnostics/outcomes.py",
        "2.0 * AT_LEVEL * np.maximum",
        "0.0 * AT_LEVEL * np.maximum",
        (f"{_OUTCOMES}::test_a_loss_stands_at_the_nearest_level",),
    ),
    Fault(
        "a label is checked only where its case holds",
        "workloads/engine/judging.py",
        "for label in verdicts.possible or np.unique",
        "for label in np.unique",
        ("tests/workloads/engine/test_judging.py::test_a_label_is_refused_whether_or_not_its_case_holds",),
    ),
    Fault(
        "a label of one of two near levels is no mistake",
        "workloads/diagnostics/verdicts.py",
        "near_L & ((detail_L == first) | (detail_L == second))",
        "near_L & (detail_L == 'none')",
        ("tests/orchestrator/running/test_preflight.py",),
    ),
    Fault(
        "levels of a table of verdicts are tried behind the rules that follow them",
        "workloads/diagnostics/verdicts.py",
        "elif row is levels[0]:",
        "elif row is levels[-1]:",
        ("tests/workloads/diagnostics/test_outcomes.py::test_the_first_row_that_holds_decides",),
    ),
    Fault(
        "the words of a workload are said of the loss of another that derives from it",
        "workloads/lenses.py",
        'if "lenses" in vars(type(workload)):',
        "if True:",
        ("tests/orchestrator/inspection/test_heads.py::test_a_subclass_keeps_its_heads_alone",),
    ),
)
