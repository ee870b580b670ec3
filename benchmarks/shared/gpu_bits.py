"""Whether a GPU gives the outcomes of a CPU, and each training the same bits whatever trains beside it."""

from typing import Any

from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.graphs import Graphs
from attnsweep.workloads.engine.judging import judged
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.width import width_on
from attnsweep.workloads.formal_languages import FormalLanguages
from shared.gpu_shapes import PAIRS, SHAPES, Shape, pack_of, unprobed, ways

SEARCHED = {"expectation": "fixed_sample", "batch_size": 50, "optimizer": "lbfgs", "n_steps": 60}
"""Whole trainings by L-BFGS that end at different times."""


def outcomes_agree(device: str, size: int = 128) -> dict[str, object]:
    """Whole trainings of system P on the device and on the CPU: how many end with the same outcome."""
    settings = [
        {"variant": "positions_only", "n_steps": 2000, "learning_rate": rate, "init_sigma": sigma}
        for rate in (1e-3, 1e-2, 5e-2)
        for sigma in (1e-3, 1e-2, 1e-1, 1.0)
    ]
    shape = Shape(PAIRS, settings)
    ends = []
    for each in (device, "cpu"):
        pack = Pack(PAIRS, shape.trainings(size), each)
        while not pack.advance(1000):
            pass
        result = pack.result()
        ends.append(result.at_last_probe(judged(PAIRS, shape.trainings(1)[0].parameters, result.evidence).outcome))
    return {"trainings": size, "equal": int((ends[0] == ends[1]).sum())}


def graphs_are_eager(device: str, size: int = 64, n_steps: int = 100) -> dict[str, bool]:
    """Whether a pack's checkpoint is the same, to the last bit, with graphs and without."""
    found = {}
    for name in SHAPES:
        if "graphs" in ways(name):
            packs = [pack_of(SHAPES[name], size, device, how) for how in ("eager", "graphs")]
            for pack in packs:
                pack.advance(n_steps)
            eager, graphed = (pack.checkpoint()["rows"].tobytes() for pack in packs)
            found[name] = eager == graphed
    return found


def bits_by_neighbours(device: str, width: int = 64, n_steps: int = 40) -> dict[str, object]:
    """Whether a training is the same to the last bit first in a pack, moved within it, and alone in a pack as wide.

    Beside it, whether it is so in a pack that is as wide as it has trainings, where it is alone.
    """
    found: dict[str, object] = {}
    for name, shape in SHAPES.items():
        one, *others = shape.trainings(width)
        packs = [([one], width), ([one, *others], width), ([*others[1:], one], width), ([one], None)]
        alone, first, moved, narrow = (_rows(shape, trainings, device, each, n_steps) for trainings, each in packs)
        found[name] = {
            "equal": bool((alone[0] == first[0]).all() and (alone[0] == moved[-1]).all()),
            "equal_if_narrow": bool((alone[0] == narrow[0]).all()),
        }
    return found


def _rows(shape: Shape, trainings: list[Training[Any]], device: str, width: int | None, n_steps: int) -> Any:
    """The parameters (L, n) of a pack after some steps."""
    is_searched = any(each.get("optimizer") == "lbfgs" for each in shape.settings)
    graphs = Graphs() if device.startswith("cuda") and not is_searched else None
    pack = Pack(unprobed(shape.workload), trainings, device, programs=graphs, width=width)
    pack.advance(n_steps)
    return pack.checkpoint()["rows"]


def whole_trainings_by_neighbours(device: str, size: int = 50, n_compared: int = 4) -> dict[str, object]:
    """How many whole trainings have the same losses, to the last bit, among others that end earlier and alone."""
    cases: dict[str, dict[str, Any]] = {
        "system P, Adam": {"variant": "positions_only", "optimizer": "adam", "n_steps": 1000, "learning_rate": 0.02},
        "solution 3, L-BFGS, float32": SEARCHED | {"variant": "solution_3", "dtype": "float32"},
        "solution 1, L-BFGS, float64": SEARCHED | {"variant": "solution_1", "dtype": "float64"},
    }
    found: dict[str, object] = {}
    for name, settings in cases.items():
        trainings = Shape(PAIRS, [settings | {"init_sigma": sigma} for sigma in (0.3, 0.01, 0.1, 1.0)]).trainings(size)
        together = _losses(trainings, device)
        alone = [_losses([trainings[lane]], device)[0] for lane in range(n_compared)]
        equal = sum(each.tobytes() == together[lane].tobytes() for lane, each in enumerate(alone))
        found[name] = {"compared": n_compared, "equal": equal}
    return found


def replays_in_the_recorded_width(device: str, size: int = 150, n_replayed: int = 4) -> dict[str, object]:
    """How many trainings of a pack end alike, to the last bit, where they are replayed as `attnsweep replay` does.

    Each alone, in a pack as wide as the one that it was recorded in: 256 lanes for 150 trainings.
    """
    strings = {"n_epochs": 3, "steps_per_epoch": 20, "eval_batch_size": 4, "test_batch_size": 4}
    cases: dict[str, tuple[Workload[Any], dict[str, Any]]] = {
        "system P, Adam": (PAIRS, {"variant": "positions_only", "optimizer": "adam", "n_steps": 500}),
        "FIRST": (FormalLanguages(), strings | {"language": "first", "train_length": 30, "longest_test_length": 50}),
        "solution 3, L-BFGS": (PAIRS, SEARCHED | {"variant": "solution_3"}),
    }
    width, found = width_on("cuda", size), dict[str, object]()
    for name, (workload, settings) in cases.items():
        trainings = Shape(workload, [settings | {"learning_rate": rate} for rate in (1.0, 0.01, 0.1)]).trainings(size)
        together = _losses(trainings, device, workload, width)
        alone = [_losses([trainings[lane]], device, workload, width)[0] for lane in range(n_replayed)]
        equal = sum(each.tobytes() == together[lane].tobytes() for lane, each in enumerate(alone))
        found[name] = {"replayed": n_replayed, "equal": equal, "width": width}
    return found


def _losses(
    trainings: list[Training[Any]], device: str, workload: Workload[Any] = PAIRS, width: int | None = 64
) -> Any:
    """(L, P) losses of whole trainings, at all probes."""
    graphs = Graphs() if device.startswith("cuda") else None
    pack = Pack(workload, trainings, device, programs=graphs, width=width)
    while not pack.advance(1000):
        pass
    return pack.result().evidence.metrics["loss"]
