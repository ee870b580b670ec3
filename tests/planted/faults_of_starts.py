"""Planted faults in where trainings start, and in what a module may hold."""

from tests.planted.fault import Fault

_CONSTRUCTION = "tests/workloads/engine/test_construction.py"
_CONSTANTS = "tests/workloads/engine/test_constants.py"
_INITIALIZATION = "tests/workloads/engine/test_initialization.py"
_PLAIN = "tests/workloads/engine/test_plain.py"
_TRAINABLE = "tests/workloads/engine/test_construction.py"
_STARTS = "tests/orchestrator/running/test_preflight.py"

FAULTS_OF_STARTS = (
    Fault(
        "a module that draws from whatever the global generator holds",
        "workloads/engine/construction.py",
        "    torch.default_generator.manual_seed(seed)\n",
        "",
        (f"{_CONSTRUCTION}::test_a_training_is_a_function_of_its_parameters_and_seed",),
    ),
    Fault(
        "a module that draws from NumPy's generator as it is",
        "workloads/engine/construction.py",
        "    np.random.seed(seed % _NUMPY_SEEDS)  # Users' code may draw from NumPy's global generator.\n",
        "",
        (f"{_CONSTRUCTION}::test_a_training_is_a_function_of_its_parameters_and_seed",),
    ),
    Fault(
        "a generator of NumPy that stays seeded",
        "workloads/engine/construction.py",
        "        np.random.set_state(numpy_state)\n",
        "",
        (f"{_CONSTRUCTION}::test_the_global_generators_are_left_as_they_were",),
    ),
    Fault(
        "vectors of the first lane's module for all lanes",
        "workloads/engine/contract.py",
        "lanes.streams, lanes.built)",
        "lanes.streams)",
        (_CONSTRUCTION,),
    ),
    Fault(
        "a generator that cannot be seeded",
        "workloads/engine/construction.py",
        "    check_built_again(template, again, {name: value[0] for name, value in stacked.items()})\n",
        "",
        (f"{_CONSTRUCTION}::test_a_generator_that_cannot_be_seeded_is_refused_by_name",),
    ),
    Fault(
        "a refusal of memory that nobody reads",
        "workloads/engine/construction.py",
        "not _is_same(value, others[name]) and _is_same(value, start[name])",
        "not _is_same(value, others[name])",
        (f"{_CONSTRUCTION}::test_what_a_training_does_not_start_with_need_not_be_set",),
    ),
    Fault(
        "null draws what the module has initialized",
        "workloads/engine/initialization.py",
        "return torch.where(has_own_L.view(-1, *[1] * len(shape)), built.to(default), default)",
        "return default",
        (f"{_CONSTRUCTION}::test_null_is_the_modules_own_initialization_under_the_trainings_generator",),
    ),
    Fault(
        "null leaves attnsweep's own layers at 0",
        "workloads/engine/initialization.py",
        "if isinstance(owner, DrawnByEngine):",
        "if False:",
        (f"{_CONSTRUCTION}::test_layers_of_the_engine_are_drawn_beside_layers_with_an_initialization_of_their_own",),
    ),
    Fault(
        "gains of 1 count as an initialization",
        "workloads/engine/initialization.py",
        "if value.dim() > 2:",
        "if value.dim() > 1:",
        (_INITIALIZATION,),
    ),
    Fault(
        "a tied weight twice",
        "workloads/engine/initialization.py",
        "for name, value in module.named_parameters()\n        if value",
        "for name, value in module.named_parameters(remove_duplicate=False)\n        if value",
        (f"{_CONSTRUCTION}::test_a_tied_weight_is_drawn_once_and_stays_tied",),
    ),
    Fault(
        "a number of the first lane for all",
        "workloads/engine/construction.py",
        "    if difference is None:\n",
        "    if difference is None or difference:\n",
        (f"{_CONSTANTS}::test_a_number_of_one_training_is_not_taken_for_all", _STARTS),
    ),
    Fault(
        "what a function encloses is not read",
        "workloads/engine/constants.py",
        "return closed | {",
        "return {",
        (_CONSTANTS,),
    ),
    Fault(
        "parameters that differ between lanes can be read",
        "workloads/engine/constants.py",
        "        if name in unshared:\n",
        "        if name in unshared and not name:\n",
        (f"{_CONSTANTS}::test_stored_parameters_give_what_is_shared_and_refuse_the_rest",),
    ),
    Fault(
        "a later pack with the constants of the first",
        "workloads/engine/lane_state.py",
        "return self.parameters.static_key(), self.constants",
        "return self.parameters.static_key()",
        (f"{_CONSTANTS}::test_problems_that_differ_in_a_constant_share_no_program",),
    ),
    Fault(
        "a traceback for dropout",
        "workloads/engine/functional.py",
        "            if refusal is None:\n",
        "            if refusal is None or refusal:\n",
        ("tests/workloads/engine/test_vectorization.py",),
    ),
    Fault(
        "a sweep begins whose losses cannot be computed",
        "orchestrator/running/preflight.py",
        "                _compute(workload, trainings[:1])\n",
        "",
        (_STARTS,),
    ),
    Fault(
        "a padding row that all trainings but one learn",
        "workloads/engine/functional.py",
        "EngineForms(under(DROPOUT, batch), has_padding)",
        "EngineForms(under(DROPOUT, batch), False)",
        (f"{_PLAIN}::test_no_training_learns_its_padding_row",),
    ),
    Fault(
        "a frozen parameter that is trained",
        "workloads/engine/construction.py",
        "template.named_parameters() if value.requires_grad]",
        "template.named_parameters()]",
        (f"{_TRAINABLE}::test_a_frozen_parameter_stays_where_its_training_starts",),
    ),
    Fault(
        "running averages that a resumed training has lost",
        "workloads/engine/plain.py",
        "if changed := _changed(tensors_of(self._module), state):",
        "if (changed := _changed(tensors_of(self._module), state)) and not changed:",
        (_PLAIN,),
    ),
    Fault(
        "a hook on gradients that the engine leaves out",
        "workloads/engine/plain.py",
        "self._loss.isfinite() and not _is_near(gradients",
        "self._loss.isnan() and not _is_near(gradients",
        (f"{_PLAIN}::test_what_is_not_of_one_training_is_refused",),
    ),
    Fault(
        "a counter in the module that counts two calls at once",
        "workloads/engine/plain.py",
        "        self.compare_again(self)\n",
        "",
        (f"{_PLAIN}::test_what_is_not_of_one_training_is_refused",),
    ),
    Fault(
        "the imaginary parts of a buffer left out",
        "workloads/engine/construction.py",
        "    elif value.is_complex():\n",
        "    elif value.is_complex() and not name:\n",
        (f"{_TRAINABLE}::test_what_cannot_be_trained_is_refused",),
    ),
    Fault(
        "a sweep begins whose losses plain PyTorch computes otherwise",
        "orchestrator/running/preflight.py",
        "        check_as_plain(workload, [first, max(others, key=n_different)])\n",
        "        max(others, key=n_different)\n",
        (f"{_STARTS}::test_a_loss_that_plain_pytorch_computes_otherwise_is_refused",),
    ),
    Fault(
        "a sweep begins whose modules differ",
        "orchestrator/running/preflight.py",
        "    check_stop_metrics(sample)\n    check_starts(sample)\n",
        "    check_stop_metrics(sample)\n",
        (f"{_STARTS}::test_nothing_is_written",),
    ),
    Fault(
        "a measure of the global generator passes",
        "workloads/testing.py",
        "            torch.default_generator.manual_seed(state)\n",
        "            torch.default_generator.manual_seed(0)\n",
        ("tests/workloads/test_testing.py::test_a_measure_that_draws_from_the_global_generator_is_found",),
    ),
)
