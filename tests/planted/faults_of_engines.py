"""Planted faults in the engines and their programs."""

from tests.planted.fault import Fault

_ENGINE = "tests/workloads/engine"
_LANES_LAST = (f"{_ENGINE}/test_lanes_last.py",)
_CONSTANTS = (f"{_ENGINE}/test_blocks.py::test_constants_of_a_loss_belong_to_its_program",)

FAULTS_OF_ENGINES = (
    Fault(
        "a program's key without the values of its constants",
        "workloads/engine/compiling/libraries.py",
        "tuple(value.shape), value.tolist())",
        "tuple(value.shape))",
        _CONSTANTS,
    ),
    Fault(
        "a constant that no trace can hold",
        "workloads/engine/compiling/lanes_last.py",
        "return constant(value).unsqueeze(-1) if",
        "return value.unsqueeze(-1) if",
        _CONSTANTS,
    ),
    Fault(
        "a program of a constant that is too long to be written out",
        "workloads/engine/compiling/lanes_last.py",
        "if not 0 < value.numel() <= _MOST_WRITTEN_OUT:",
        "if not 0 < value.numel():",
        _LANES_LAST,
    ),
    Fault(
        "entries read along the axis of lanes",
        "workloads/engine/compiling/lookups.py",
        "value.gather(axis_of(node, dim), index)",
        "value.gather(dim, index)",
        _LANES_LAST,
    ),
    Fault(
        "an entry written from the source's place, not from the index's",
        "workloads/engine/compiling/lookups.py",
        "_places(node, axis, index), _read_by(index, source), value)",
        "_places(node, axis, index), source, value)",
        _LANES_LAST,
    ),
    Fault(
        "rows of an embedding counted on the CPU",
        "workloads/engine/compiling/lookups.py",
        "(index.unsqueeze(-2) == torch.arange(n_rows, device=index.device)",
        "(index.unsqueeze(-2) == torch.arange(n_rows)",
        _LANES_LAST,
    ),
    Fault(
        "entries added once for several equal places",
        "workloads/engine/compiling/lookups.py",
        "_read_by(index, source).unsqueeze(axis), 0).sum(axis + 1)",
        "_read_by(index, source).unsqueeze(axis), 0).amax(axis + 1)",
        _LANES_LAST,
    ),
    Fault(
        "a trace that fails for no reason",
        "workloads/engine/vectorization.py",
        "if isinstance(error, GuardOnDataDependentSymNode):",
        "if False:",
        _LANES_LAST,
    ),
    Fault(
        "a large step that seems to gain as a small one",
        "orchestrator/running/engine_choice.py",
        "graph.n_numbers < _LARGE_STEP else",
        "graph.n_numbers > 0 else",
        (
            "tests/orchestrator/running/test_engine_choice.py::"
            "test_a_sweep_is_trained_in_blocks_from_where_its_trainings_repay_the_compiler",
        ),
    ),
    Fault(
        "a deviation by place that is never seen",
        "workloads/engine/plain.py",
        "for lane, tensors in enumerate(alone)",
        "for lane, tensors in enumerate(alone[:0])",
        (f"{_ENGINE}/test_plain.py",),
    ),
    Fault(
        "one reason given twice",
        "workloads/engine/executors/blocks.py",
        'reasons = "; ".join(dict.fromkeys((str(no_step), str(no_gradient))))',
        'reasons = "; ".join((str(no_step), str(no_gradient)))',
        (f"{_ENGINE}/test_blocks.py::test_a_shape_without_a_program_trains_as_without_blocks",),
    ),
    Fault(
        "a full disk is an error of what is compiled",
        "workloads/engine/compiling/libraries.py",
        "refusal = next((text for text in _REFUSALS if text in trace), None)",
        "refusal = None",
        (f"{_ENGINE}/test_blocks.py::test_a_full_disk_says_nothing_against_what_is_compiled",),
    ),
    Fault(
        "a training fails where its program cannot be kept",
        "orchestrator/training/local_pool.py",
        "if isinstance(report, Raised) and report.cannot_compile:",
        "if False:",
        ("tests/orchestrator/training/test_local_pool.py::test_a_machine_that_cannot_compile_fails_no_training",),
    ),
)
