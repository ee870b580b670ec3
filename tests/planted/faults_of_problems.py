"""Planted faults in the problems of the field."""

from tests.planted.fault import Fault

_FIELD = "tests/workloads/field"

FAULTS_OF_PROBLEMS = (
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
