"""Planted faults in the problems of the field."""

from tests.planted.fault import Fault

_FIELD = "tests/workloads/field"
_PROBLEM = "tests/workloads/problem/test_problem.py"

FAULTS_OF_PROBLEMS = (
    Fault(
        "modules share the table that was made once",
        "workloads/problem/problem.py",
        "column.clone())",
        "column)",
        (f"{_PROBLEM}::test_the_comparison_with_plain_pytorch_changes_no_table",),
    ),
    Fault(
        "a table's held-out rows are trained on",
        "workloads/problem/data.py",
        "rows = slice(n_rows, None)",
        "rows = slice(0, None)",
        (f"{_PROBLEM}::test_each_training_has_its_own_split_of_the_table",),
    ),
    Fault(
        "all steps of a drawn problem have the same data",
        "workloads/problem/data.py",
        "self._step = seed if own_seed is None else own_seed, use, step",
        "self._step = seed if own_seed is None else own_seed, use, 0",
        (f"{_PROBLEM}::test_data_are_drawn_from_each_trainings_own_seed_and_step",),
    ),
    Fault(
        "an event holds after a training's end",
        "workloads/engine/judging.py",
        "holds = holds & (np.arange(expected[1]) <= last_probe[:, None])",
        "holds = holds & (np.arange(expected[1]) >= 0)",
        ("tests/workloads/engine/test_judging.py::test_an_event_came_at_the_first_probe_at_which_it_held",),
    ),
    Fault(
        "attention is biased for the first answer, too",
        "workloads/field/abrupt_learning.py",
        "factor_TT[T - length + 1 :][optimal_keys(task, length)[1:]] = optimal_scale",
        "factor_TT[T - length :][optimal_keys(task, length)] = optimal_scale",
        (f"{_FIELD}/test_abrupt_learning.py::test_a_factor_multiplies_the_weights_of_the_tokens_that_are_needed",),
    ),
    Fault(
        "a state's cosine with itself counts as collapse",
        "workloads/field/abrupt_learning.py",
        ".mean() - (length - 1)) / ((length - 1) * (length - 2))",
        ".mean() - 0) / ((length - 1) * (length - 1))",
        (f"{_FIELD}/test_abrupt_learning.py::test_repetition_and_collapse_are_those_of_the_definition",),
    ),
    Fault(
        "all letters of a sequence may be equal",
        "workloads/field/histogram.py",
        "drawn_B = 1 + (share_B * (left_B - 1)).long()",
        "drawn_B = 1 + (share_B * left_B).long()",
        (f"{_FIELD}/test_histogram.py::test_letters_places_and_counts_have_their_shares",),
    ),
)
