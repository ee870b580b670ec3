"""Whether a GPU gives the outcomes of a CPU, and each training the same bits whatever trains beside it."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.executors.programs import Executors, executors_on
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.lane_state import width_on
from attnsweep.workloads.engine.pack import Pack
from shared.shapes import GPU_SHAPES, LANGUAGES, PAIRS, SHAPES, Shape, unprobed

SEARCHED = {"expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs", "n_steps": 60}
"""Whole trainings by L-BFGS that end at different times."""
STRINGS = {"language": "first", "train_length": 30, "longest_test_length": 50, "n_epochs": 3, "steps_per_epoch": 20}
STRINGS |= {"eval_batch_size": 4, "test_batch_size": 4}
WHOLE: dict[str, tuple[Workload[Any], dict[str, Any], int]] = {
    "system P, Adam": (PAIRS, {"variant": "positions_only", "optimizer": "adam", "n_steps": 1000}, 150),
    "FIRST": (LANGUAGES, STRINGS, 150),
    "solution 3, L-BFGS, float32": (PAIRS, SEARCHED | {"variant": "solution_3", "dtype": "float32"}, 150),
    "solution 1, L-BFGS, float64": (PAIRS, SEARCHED | {"variant": "solution_1", "dtype": "float64"}, 50),
}
"""Whole trainings whose bits are compared: workload, parameters, and how many share a pack."""


@cache
def programs_of(device: str, how: str) -> Executors | None:
    """What takes a pack's steps: those of a trainer, launched as graphs or merged; `eager` launches from Python."""
    return None if how == "eager" else executors_on(device.partition(":")[0], how)


def outcomes_agree(device: str, size: int = 128) -> dict[str, object]:
    """Whole trainings of system P on the device and on the CPU: how many end with the same outcome."""
    settings = [
        {"variant": "positions_only", "n_steps": 2000, "learning_rate": rate, "init_sigma": sigma}
        for rate in (1e-3, 1e-2, 5e-2)
        for sigma in (1e-3, 1e-2, 1e-1, 1.0)
    ]
    trainings, ends = Shape(PAIRS, settings).trainings(size), []
    for each in (device, "cpu"):
        result = Pack(PAIRS, trainings, each).train_to_end()
        ends.append(result.at_last_probe(judged(PAIRS, trainings[0].parameters, result.evidence).outcome))
    return {"trainings": size, "equal": int((ends[0] == ends[1]).sum())}


def graphs_are_eager(device: str, size: int = 64, n_steps: int = 100) -> dict[str, bool]:
    """Whether a pack's rows are the same, to the last bit, with graphs and without."""
    found = {}
    for name in GPU_SHAPES:
        if not SHAPES[name].is_searched:
            packs = [SHAPES[name].pack(size, device, programs=programs_of(device, how)) for how in ("eager", "graphs")]
            for pack in packs:
                pack.advance(n_steps)
            eager, graphed = (pack.checkpoint()["rows"].tobytes() for pack in packs)
            found[name] = eager == graphed
    return found


def bits_by_neighbours(
    device: str, names: Sequence[str] = GPU_SHAPES, how: str = "graphs", width: int = 64, n_steps: int = 40
) -> dict[str, object]:
    """Whether a training is the same to the last bit first in a pack, moved within it, and alone in a pack as wide.

    Beside it, whether it is so in a pack that is as wide as it has trainings, where it is alone.
    """
    found: dict[str, object] = {}
    for name in names:
        one, *others = SHAPES[name].trainings(width)
        packs = [([one], width), ([one, *others], width), ([*others[1:], one], width), ([one], None)]
        alone, first, moved, narrow = (_rows(SHAPES[name], device, how, n_steps, *each) for each in packs)
        found[name] = {
            "equal": bool((alone[0] == first[0]).all() and (alone[0] == moved[-1]).all()),
            "equal_if_narrow": bool((alone[0] == narrow[0]).all()),
        }
    return found


def _rows(shape: Shape, device: str, how: str, n_steps: int, trainings: list[Training[Any]], width: int | None) -> Any:
    """The parameters (L, n) of a pack after some steps."""
    programs = programs_of(device, "eager" if shape.is_searched else how)
    pack = Pack(unprobed(shape.workload), trainings, device, programs=programs, width=width)
    pack.advance(n_steps)
    return pack.checkpoint()["rows"]


def whole_trainings_by_neighbours(
    device: str,
    names: Sequence[str] = tuple(WHOLE),
    how: str = "graphs",
    n_compared: int = 4,
    most: int = 150,
    **changed: Any,
) -> dict[str, object]:
    """How many whole trainings have the same losses, to the last bit, among others that end earlier and alone.

    Alone they are in a pack as wide as that in which they were among others, as `attnsweep replay` trains them.

    Args:
        device, how: As `programs_of` takes them.
        names: Among `WHOLE`.
        n_compared: How many are trained alone.
        most: That share a pack.
        changed: Other values of their parameters.
    """
    found = dict[str, object]()
    for name in names:
        workload, case, size = WHOLE[name]
        size = min(size, most)
        rates, sigmas, width = (1.0, 0.01, 0.1), (0.3, 0.01, 0.1, 1.0), width_on("cuda", size)
        settings = [case | {"learning_rate": rate, "init_sigma": sigma} | changed for rate in rates for sigma in sigmas]
        trainings = Shape(workload, settings).trainings(size)

        def losses(some: list[Training[Any]], workload: Workload[Any] = workload, width: int | None = width) -> Any:
            pack = Pack(workload, some, device, programs=programs_of(device, how), width=width)
            return pack.train_to_end().evidence.metrics["loss"]

        together = losses(trainings)
        equal = sum(losses([trainings[lane]])[0].tobytes() == together[lane].tobytes() for lane in range(n_compared))
        found[name] = {"compared": n_compared, "equal": equal, "width": width}
    return found
