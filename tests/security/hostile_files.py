"""Hostile files: sweeps, workloads, records, arrays and texts that must be refused without harm."""

import json
import os
from pathlib import Path

from tests.orchestrator.small_sweep import small_sweep, sweep_on_disk, trial_rows

DEEP = 100_000
HUGE = "1" + "0" * 400
DIGITS = "1" + "0" * 5000
"""More digits than Python converts to or from a number."""

_SPEC_HEAD = """
import sys
from dataclasses import dataclass
from attnsweep import Categorical, Float, Int, LossQuantile, Rule, Sequential, Sweep, VerdictTable
from attnsweep.workloads.engine.contract import Workload
from attnsweep.workloads.parameters import TrainingParameters, parameter

class Panic(BaseException): ...

def spec(**given):
    return Sweep(**{"name": "x", "workload": "category_pairs", "space": {}, "trials": 1} | given)

def grid(*points):
    names = ("init_sigma", "learning_rate", "weight_decay")
    space = {name: Float(low=0.1, high=1.0, points=n) for name, n in zip(names, points)}
    return spec(sampler="grid", space=space)
"""
_WORKLOAD = """
@dataclass(frozen=True, kw_only=True)
class P(TrainingParameters):
    kept: int = parameter(1, "kept")

class W(Workload):
    name = "w"
    parameters = P
    summary = "s"
    level_names = ()
    verdicts = VerdictTable((Rule.solved(),))
    def build(self, parameters): ...
    def loss(self, module, batch): ...
    def levels(self, module, batch): ...

def sweep():
    return spec(workload="{file}:W")
"""

MODULES = {
    "raises_on_import": "raise ValueError('no')",
    "nested": "x = " + "(" * 1000 + ")" * 1000,
    "minus": "x = " + "-" * DEEP + "1",
    "without": "",
}
"""Python files by name; those below have a function `sweep()`, given by its body."""
BODIES = {
    "raises": "raise RuntimeError('first\\nsecond')",
    "exits": "sys.exit(0)",
    "panics": "raise Panic('no')",
    "surrogate": "raise RuntimeError('\\ud800')",
    "recursion": "return sweep()",
    "none": "return None",
    "generator": "yield spec()",
    "twice": "return spec(space={'init_sigma': Categorical(choices=(0.1, 0.2, 0.1))})",
    "grid": "return grid(1000, 1000, 1000)",
    "ratio": "return spec(sampler='grid', space={'init_sigma': Float(low=1e-308, high=1e308, log=True, points=3)})",
    "int_value": f"return spec(space={{'warmup_steps': {HUGE}}})",
    "int_high": f"return spec(space={{'warmup_steps': Int(low=1, high={HUGE})}})",
    "float_value": f"return spec(space={{'learning_rate': {HUGE}}})",
    "trials": "return spec(trials=10**5000)",
    "replicates": f"return spec(replicates={HUGE})",
    "quantile": f"return spec(objective=LossQuantile(quantile={HUGE}))",
    "storage": "return spec(storage='postgresql://[::1')",
}
_KEPT = 'kept: int = parameter(1, "kept")'
_LEVELS = "    def levels(self, module, batch): ...\n"
WORKLOADS = {
    "abstract": (_LEVELS, ""),
    "parameters_none": ("parameters = P", "parameters = None"),
    "levels_text": ("level_names = ()", "level_names = 'abc'"),
    "levels_twice": ("level_names = ()", "level_names = ('a', 'a')"),
    "name_none": ('name = "w"', "name = None"),
    "init_raises": (_LEVELS, _LEVELS + "    def __init__(self): 1 / 0\n"),
    "field_plain": (_KEPT, "kept: int = 5"),
    "field_unknown": (_KEPT, _KEPT.replace("int", "'Nope'")),
    "no_dataclass": ("@dataclass(frozen=True, kw_only=True)", ""),
    "post_init": (_KEPT, _KEPT + "\n    def __post_init__(self): 1 / 0"),
}
"""Python files by name, each with a sweep of the workload `W`; in its text the first string is replaced by the
second."""
_GOOD = json.loads(small_sweep("s").to_json())
TEXTS = {
    "empty": "",
    "five": '{"spec": 5}',
    "deep_inside": json.dumps(_GOOD)[:-1] + ', "x": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}",
    "infinite": json.dumps(_GOOD | {"trials": "?"}).replace('"?"', "1e400"),
    "huge": json.dumps(_GOOD | {"trials": int(HUGE)}),
    "description": json.dumps(_GOOD | {"description": "\ud800"}),
    "kind": json.dumps(_GOOD | {"space": {"n_steps": {"kind": []}}}),
    "workload_nul": json.dumps(_GOOD | {"workload": "a\0b.py:W"}),
    "workload_loop": json.dumps(_GOOD | {"workload": "loop.py:W"}),
    "workload_colon": json.dumps(_GOOD | {"workload": ":"}),
    "workload_itself": json.dumps(_GOOD | {"workload": "attnsweep.workloads.engine.contract:Workload"}),
}
"""Stored specs by name."""

LOOPS = tuple(
    f"{kind}.{suffix}" for suffix in ("py", "json") for kind in ("loop", "endless", "folder", "pipe", "binary")
)
FILES = (*(f"{name}.py" for name in (*MODULES, *BODIES, "wants", *WORKLOADS)), *(f"{name}.json" for name in TEXTS))


def write_hostile_files(folder: Path) -> None:
    """All of the above, some binary files, circular links, pipes, folders, and a valid sweep in `good`."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(_SPEC_HEAD + text)
    for name, body in BODIES.items():
        (folder / f"{name}.py").write_text(f"{_SPEC_HEAD}\ndef sweep():\n    {body}\n")
    (folder / "wants.py").write_text("def sweep(n): ...\n")
    for name, change in WORKLOADS.items():
        text = _WORKLOAD.replace("{file}", f"{name}.py").replace(*change)
        (folder / f"{name}.py").write_text(_SPEC_HEAD + text)
    for name, text in TEXTS.items():
        (folder / f"{name}.json").write_text(text)
    for suffix in ("py", "json", "tsv"):
        (folder / f"loop.{suffix}").symlink_to(f"loop.{suffix}")
        (folder / f"endless.{suffix}").symlink_to("/dev/zero")
        (folder / f"folder.{suffix}").mkdir()
        os.mkfifo(folder / f"pipe.{suffix}")
        (folder / f"binary.{suffix}").write_bytes(bytes(range(256)))
    (folder / "loop").symlink_to("loop")
    (folder / "file").touch()
    (folder / "pairs.tsv").write_text("en\tde\n" + "".join(f"a{n} b\tx y{n}\n" for n in range(60)))
    trials = trial_rows(0, ["solved"] * 2), trial_rows(1, ["marginal"] * 2)
    sweep_on_disk(folder / "good", small_sweep("s", trials=2, replicates=2), *trials)
