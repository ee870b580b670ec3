"""Planted faults in interventions and what is computed from them."""

from tests.planted.fault import Fault

_TRANSLATION = "tests/workloads/translation/test_translation_interventions.py"
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
        "held[self._buffer(clamp.layer, CLAMP)][lane, clamp.head] = pattern_number(clamp.pattern)",
        "held[self._buffer(clamp.layer, CLAMP)][:, clamp.head] = pattern_number(clamp.pattern)",
        (f"{_ENGINE}::test_no_training_depends_on_the_interventions_of_others",),
    ),
    Fault(
        "a pack that was trained in one go is never released",
        "workloads/engine/intervening.py",
        "for boundary in self._boundaries if step < boundary < until), default=until)",
        "for boundary in self._boundaries[:0] if step < boundary < until), default=until)",
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
        "workloads/attention/attention.py",
        "for offset in (-1, 0, 1))",
        "for offset in (-2, 0, 1))",
        (f"{_ENGINE}::test_a_clamped_head_has_its_pattern_and_gets_no_gradient",),
    ),
    Fault(
        "a clamp counts positions from the end of the keys that fill up a vector",
        "workloads/attention/attention.py",
        "((n_keys or K) - Q)",
        "(K - Q)",
        (f"{_TRANSLATION}::test_a_clamped_head_of_the_encoder_has_its_pattern",),
    ),
    Fault(
        "a clamp shows a later word",
        "workloads/attention/attention.py",
        "one_key_BHQK = wanted_HQK * seen_BHQK",
        "one_key_BHQK = wanted_HQK * torch.ones_like(seen_BHQK)",
        (f"{_TRANSLATION}::test_a_decoder_sees_no_later_word_by_a_clamp",),
    ),
    Fault(
        "the roles of a clamped translator are those of a free one",
        "workloads/translation/translator.py",
        "bias_B1QK, self.clamp_H, n_keys)",
        "bias_B1QK, None, n_keys)",
        (f"{_TRANSLATION}::test_roles_are_those_of_the_clamped_heads",),
    ),
    Fault(
        "a scale of one head scales all heads of its layer",
        "workloads/engine/intervening.py",
        "heads = slice(None) if scale.head is None else scale.head",
        "heads = slice(None)",
        (f"{_ENGINE}::test_the_logits_of_a_scaled_head_are_multiplied",),
    ),
    Fault(
        "of two scales of a head the last counts",
        "workloads/engine/intervening.py",
        "[lane, heads] *= scale.factor",
        "[lane, heads] = scale.factor",
        (f"{_ENGINE}::test_the_logits_of_a_scaled_head_are_multiplied",),
    ),
    Fault(
        "frozen parameters follow their gradients in merged steps",
        "workloads/engine/executors/graphs.py",
        "self._state[name].copy_(torch.where(moves, self._state[name], before[name]))",
        "pass",
        (f"{_ENGINE}::test_programs_of_steps_freeze_and_kick_too",),
    ),
    Fault(
        "a forecast trains pilots with interventions",
        "orchestrator/tools/forecast/forecast.py",
        "resolve(values | {INTERVENTION: None})",
        "resolve(values)",
        ("tests/orchestrator/tools/test_forecast.py::test_cases_are_of_trainings_without_interventions",),
    ),
    Fault(
        "the law of a start is taken for a training whose parameters are frozen",
        "workloads/forecast/prediction.py",
        " or parameters.intervention is not None",
        "",
        ("tests/workloads/forecast/test_forecast.py::test_no_prediction_without_a_law",),
    ),
    Fault(
        "a module is exported without the clamp that it was trained with",
        "orchestrator/inspection/trained_module.py",
        "isinstance(each, Clamp | Scale) and at in each.steps]",
        "isinstance(each, Scale) and at in each.steps]",
        ("tests/orchestrator/inspection/test_trained_module.py::test_heads_that_are_held_are_not_exported",),
    ),
    Fault(
        "a loss at a level is below it",
        "orchestrator/analysis/onset_times.py",
        "value < level - {share} * abs(level)",
        "value < level + {share} * abs(level)",
        (
            "tests/orchestrator/analysis/test_onset_times.py"
            "::test_a_level_is_passed_where_the_loss_is_more_than_a_hundredth_below_it",
        ),
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
