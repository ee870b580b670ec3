"""Planted faults in continuations of trainings."""

from tests.planted.fault import Fault

_CONTINUED = "workloads/engine/continued.py"
_CONTINUATION = "orchestrator/inspection/continuation.py"
_OF_ENGINE = "tests/workloads/engine/test_continued.py"
_OF_FORKS = "tests/orchestrator/inspection/test_fork.py"

FAULTS_OF_FORKS = (
    Fault(
        "new data come with new dropout masks",
        _CONTINUED,
        'if is_of_start or name.startswith(NOISE) != (redraw.what == "noise"):',
        "if is_of_start:",
        (f"{_OF_ENGINE}::test_only_what_is_asked_for_is_drawn_anew",),
    ),
    Fault(
        "a fork at step 0 draws another task",
        _CONTINUED,
        "used_from < redraw.step or (used_from == 0 and name in redraw.kept)",
        "used_from < redraw.step",
        (f"{_OF_ENGINE}::test_the_task_is_never_drawn_anew",),
    ),
    Fault(
        "a fork draws anew what was drawn before its step",
        _CONTINUED,
        "used_from < redraw.step or",
        "False or",
        (f"{_OF_ENGINE}::test_the_task_is_never_drawn_anew",),
    ),
    Fault(
        "a pass that has begun gets another order",
        "workloads/translation/data.py",
        "turn, used_from=turn * passes.steps)",
        "turn, used_from=steps[0])",
        (f"{_OF_ENGINE}::test_the_order_of_a_pass_that_has_begun_stays",),
    ),
    Fault(
        "continuations whose heads are mixed up",
        _CONTINUED,
        '"lanes": np.tile(lanes, n_probes)',
        '"lanes": np.repeat(lanes, n_probes)',
        (f"{_OF_ENGINE}::test_with_its_own_draws_a_training_ends_as_it_did_and_with_others_it_has_its_past",),
    ),
    Fault(
        "continuations with the draws of the training",
        "workloads/engine/lane_store.py",
        "self._workload.batches(self._drawing, range(",
        "self._workload.batches(self.lanes, range(",
        (f"{_OF_ENGINE}::test_with_its_own_draws_a_training_ends_as_it_did_and_with_others_it_has_its_past",),
    ),
    Fault(
        "the training itself has other draws too",
        _CONTINUATION,
        'own if number == 0 or self.change == "kick" else',
        'own if self.change == "kick" else',
        (f"{_OF_FORKS}::test_the_training_itself_is_among_its_continuations",),
    ),
    Fault(
        "the training itself is kicked",
        _CONTINUATION,
        "is_kicked = np.flatnonzero(np.array(numbers))",
        "is_kicked = np.arange(len(numbers))",
        (f"{_OF_FORKS}::test_a_kick_of_nothing_leaves_the_training_and_a_kick_is_the_same_twice",),
    ),
    Fault(
        "all trainings have the same continuations",
        _CONTINUATION,
        'generator_seed(of_training, f"fork/{number}")',
        'generator_seed(0, f"fork/{number}")',
        (f"{_OF_FORKS}::test_forks_of_other_trainings_have_draws_of_their_own",),
    ),
    Fault(
        "the training itself counts as a continuation",
        "orchestrator/inspection/fork.py",
        'pc.field("replicate") > 0',
        'pc.field("replicate") >= 0',
        (f"{_OF_FORKS}::test_a_planted_committor_is_found_before_the_coin_falls_and_the_training_knows_its_own",),
    ),
    Fault(
        "a fork of what draws nothing",
        _CONTINUATION,
        "return bool(redraw.found)",
        "return True",
        (f"{_OF_FORKS}::test_bad_input_gets_one_sentence",),
    ),
    Fault(
        "the other side of an outcome",
        "orchestrator/inspection/sealing.py",
        "sum((outcome == about) == is_own for outcome in outcomes)",
        "sum(outcome == about for outcome in outcomes)",
        (f"{_OF_FORKS}::test_a_bisection_finds_the_step_of_the_coin",),
    ),
    Fault(
        "sealed by the estimate alone",
        "orchestrator/inspection/sealing.py",
        "        _, low, high = self.rate.interval\n        if low >=",
        "        low, _, high = self.rate.interval\n        if low >=",
        (f"{_OF_FORKS}::test_verdicts_are_wrong_in_less_than_their_share_of_the_errors",),
    ),
    Fault(
        "kicked rows whose predicted escape counts from the step of the kick",
        _CONTINUATION,
        "return step + predicted_escapes(",
        "return predicted_escapes(",
        (f"{_OF_FORKS}::test_kicked_rows_have_the_escape_that_the_law_predicts_for_their_weights",),
    ),
    Fault(
        "an escape from later weights asks for their own loss, not for that of the start",
        "workloads/forecast/prediction.py",
        "        if weights is not None:\n            self._held =",
        "        if False:\n            self._held =",
        (
            "tests/workloads/forecast/test_forecast.py::"
            "test_a_prediction_from_later_weights_counts_from_there_and_asks_for_the_loss_of_the_start",
        ),
    ),
    Fault(
        "a training that had ended before a step has no committor of its outcome",
        "orchestrator/inspection/fork.py",
        'binomial_rate(n if row["outcome"] == outcome else 0, n)',
        "binomial_rate(0, n)",
        (f"{_OF_FORKS}::test_what_ended_before_a_step_has_the_committor_of_its_own_outcome",),
    ),
    Fault(
        "a few trainings that are all decided show that all trainings are",
        "orchestrator/analysis/committors.py",
        "_drawn(np.append(q_R, q), np.append(open_R, is_open))",
        "_drawn(q_R, open_R)",
        ("tests/orchestrator/analysis/test_committors.py::test_few_decided_trainings_do_not_show_that_all_are",),
    ),
    Fault(
        "the chance of few continuations counts as a difference between states",
        "orchestrator/analysis/committors.py",
        "k_R * (n_R - k_R) / (n_R * (n_R - 1))",
        "k_R * (n_R - k_R) / (n_R * n_R)",
        (f"{_OF_FORKS}::test_how_much_is_decided_is_nothing_before_the_coin_and_all_after_it_or_at_the_start",),
    ),
    Fault(
        "the linear law of the zero without its modes",
        "reproduction/studies/fork_border.py",
        "start_LF @ self.modes.T * (1 +",
        "start_LF * (1 +",
        ("tests/reproduction/test_forks.py::test_the_linear_law_labels_each_training_as_it_ends",),
    ),
)
