"""Makes the pictures of README.md and the example report anew: about two minutes on two cores.

    python docs/pictures.py [phase] [speed] [report]

- `phase`: docs/figures/stuck_3000.png and stuck_30000.png, from 4,096 trainings each.
- `speed`: docs/figures/speed.png, from the figures in benchmarks/*.json.
- `report`: the sweep in docs/ledgers/quickstart, and its report.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

from attnsweep import open_sweep, plot_phase

DOCS = Path(__file__).parent
BLUE, VERMILION = "#0072b2", "#d55e00"
"""Faster, slower."""


def phase() -> None:
    with tempfile.TemporaryDirectory() as place:
        for steps in (3000, 30000):
            size = ("--trials", "1024", "--replicates", "4", "--set", f"n_steps={steps}")
            attnsweep(place, "run", "quickstart", "--local", "--dir", f"after_{steps}", *size)
            diagram = open_sweep(f"{place}/after_{steps}").phase_diagram("init_sigma", "learning_rate")
            plot_phase(diagram).savefig(DOCS / "figures" / f"stuck_{steps}.png", dpi=120)


def speed() -> None:
    bars = {
        "a whole sweep, start to end": {
            "Ray Tune, 1,024 trainings of 0.1 s": spent("vs_ray_tune", "ray_tune", "attnsweep_16", 1024),
            "Optuna's loop, 1,024 trainings of 0.1 s": spent("vs_optuna", "optuna", "attnsweep_local", 1024),
            "Optuna's loop, 64 trainings of 0.1 s": spent("vs_optuna", "optuna", "attnsweep_local", 64),
            "a plain loop, 84 trainings, 2 layers, dropout": measured("vs_jax")["sweeps"][-1]["times"],
        },
        "a step of one training": {
            "a plain loop: nanoGPT, d = 64": times("nanoGPT, d = 64", 16, "plain"),
            "a plain loop: induction, 2 layers": times("induction", 64, "plain"),
            "a plain loop: one tiny attention layer": times("system P, float64", 64, "plain"),
            "JAX, jit of vmap: induction, 2 layers": times("induction", 64, "jax"),
            "JAX, jit of vmap: one tiny attention layer": times("system P, float64", 64, "jax"),
            "HFTA, fused by hand: 2 linear layers": times("HFTA's network", 64, "hfta"),
        },
    }
    figure, panels = plt.subplots(2, 1, figsize=(7.5, 3.4), sharex=True, height_ratios=[4, 6], layout="constrained")
    for panel, (title, factors) in zip(panels, bars.items(), strict=True):
        colors = [BLUE if factor > 1 else VERMILION for factor in factors.values()]
        drawn = panel.barh(list(factors), [factor - 1 for factor in factors.values()], left=1, color=colors, height=0.7)
        panel.bar_label(
            drawn, [f" {factor:.2g} " if factor < 100 else f" {factor:.0f}" for factor in factors.values()], fontsize=8
        )
        panel.set_title(title, fontsize=9, loc="left")
        panel.invert_yaxis()
        panel.axvline(1, color="black", linewidth=0.8)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    panels[1].set_xscale("log")
    panels[1].set_xlim(0.3, 3000)
    panels[1].set_xlabel("times as fast as", fontsize=9)
    figure.savefig(DOCS / "figures" / "speed.png", dpi=120)


def measured(benchmark: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS.parent / "benchmarks" / f"{benchmark}.json").read_text())
    return found


def spent(benchmark: str, peer: str, ours: str, trainings: int) -> float:
    """The ratio of the CPU seconds of all processes."""
    rows = {row["side"]: row["cpu_seconds"] for row in measured(benchmark)["rows"] if row["trainings"] == trainings}
    return float(rows[peer] / rows[ours])


def times(shape: str, trainings: int, peer: str) -> float:
    steps = {(row["shape"], row["trainings"]): row["times"] for row in measured("vs_jax")["steps"]}
    return float(steps[shape, trainings][peer])


def report() -> None:
    kept = DOCS / "ledgers" / "quickstart"
    shutil.rmtree(kept, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        attnsweep(place, "run", "quickstart", "--local", "--dir", "sweeps/first")
        attnsweep(place, "compact", "sweeps/first")
        shutil.copytree(f"{place}/sweeps/first", kept, ignore=shutil.ignore_patterns(".*", "report_figures"))


def attnsweep(directory: str, *words: str) -> None:
    subprocess.run([Path(sys.executable).parent / "attnsweep", *words], cwd=directory, check=True)


PICTURES = {each.__name__: each for each in (phase, speed, report)}

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name]()
