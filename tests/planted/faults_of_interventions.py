"""Planted faults in interventions and what is computed from them."""

from tests.planted.fault import Fault

_ENGINE = "tests/workloads/engine/test_intervening.py"
_ANALYSIS = "tests/orchestrator/analysis/test_interventions.py"

FAULTS_OF_INTERVENTIONS = (
    Fault(
        "a kick's noise depends on the size of the pack",
        "workloads/engine/intervening.py",
        "tuple(value.shape[1:]), state.stepping.n_updates)",
        "tuple(value.shape[1:]), len(state.rows))",
        (f"{_ENGINE}::test_no_training_depends_on_the_interventions_of_others",),
    ),
    Fault(
        "all lanes are clamped as one is",
        "workloads/engine/intervening.py",
        "found[name][lane, each.head] = pattern_number(each.pattern)",
        "found[name][:, each.head] = pattern_number(each.pattern)",
        (f"{_ENGINE}::test_no_training_depends_on_the_interventions_of_others",),
    ),
    Fault(
        "a pack that was trained in one go is never released",
        "workloads/engine/intervening.py",
        "for each in self._boundaries if step < each < until), default=until)",
        "for each in self._boundaries[:0] if step < each < until), default=until)",
        (f"{_ENGINE}::test_a_resumed_pack_goes_on_as_if_it_had_not_stopped",),
    ),
    Fault(
        "frozen parameters follow their gradients in PyTorch's own kernels",
        "workloads/engine/first_order.py",
        "theta.copy_(torch.where(masks[name], theta, before))",
        "pass",
        (f"{_ENGINE}::test_frozen_parameters_stay_and_the_others_move",),
    ),
    Fault(
        "a clamped head looks two tokens back",
        "workloads/attention/clamps.py",
        "(position_K[K - Q :] - 1).clamp(min=0)",
        "(position_K[K - Q :] - 2).clamp(min=0)",
        (f"{_ENGINE}::test_a_clamped_head_has_its_pattern_and_gets_no_gradient",),
    ),
    Fault(
        "a tie counts as sooner",
        "orchestrator/analysis/interventions.py",
        "(step < other + ~other_came)",
        "(step < other + 2)",
        (f"{_ANALYSIS}::test_a_pair_says_which_is_known_to_be_first",),
    ),
    Fault(
        "pairs of other parameters",
        "orchestrator/analysis/interventions.py",
        'for name in ("workload", "seed", *others))',
        'for name in ("workload", "seed"))',
        (f"{_ANALYSIS}::test_pairs_have_the_same_seed_and_differ_in_the_intervention_alone",),
    ),
    Fault(
        "an intervention has seeds of its own",
        "orchestrator/training/tasks.py",
        "parameters.identity().items() if name != INTERVENTION}",
        "parameters.identity().items()}",
        (
            "tests/orchestrator/training/test_tasks.py"
            "::test_trials_of_a_grid_that_differ_in_the_intervention_alone_have_the_same_seeds",
        ),
    ),
)
