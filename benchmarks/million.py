"""A million trainings on this machine: the sweep by its processes, its ledger, and the commands that read it.

    python benchmarks/million.py [--trials 62500] [--replicates 16] [--folder DIR] [--out benchmarks/million.json]

Runs `attnsweep run million` and looks twice a second at the processes that it has started: CPU seconds and memory by
kind. Then it reads the ledger with `status`, `query`, `report` and `audit`, each in a process of its own. `--folder`
keeps the sweep; by default it is removed.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from harness import attnsweep_command, descendants, main, spent_by

_POLL_SECONDS = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KINDS = {
    "ray::": "trainers",
    "default_worker": "trainers",
    "mlflow-sync": "MLflow",
    "raylet": "Ray",
    "gcs_server": "Ray",
}
_QUERY = "select outcome, count(*), avg(eval_loss), median(n_steps) from trainings group by 1 order by 2 desc"


def measure(*, trials: int = 62_500, replicates: int = 16, folder: str = "") -> dict[str, Any]:
    """`of_the_trainers_cpu_over_cores`: the seconds over those that the trainers' CPU time needs on all cores."""
    with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as place:
        Path(place).mkdir(parents=True, exist_ok=True)
        directory = Path(place, "million")
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{place}/mlflow.db"
        options = ["--trials", str(trials), "--replicates", str(replicates), "--no-report", "--json"]
        summary, parts, seconds = _watched(attnsweep_command("run", "million", "--dir", str(directory), *options))
        cores = os.cpu_count() or 1
        of_trainers = next(each["cpu_seconds"] for each in parts if each["part"] == "trainers")
        return {
            "trainings": summary["trainings"],
            "seconds": round(seconds, 1),
            "of_the_trainers_cpu_over_cores": round(seconds / (of_trainers / cores), 2),
            "parts": parts,
            "ledger": _sizes(directory),
            "read": [_read(name, directory) for name in ("status", "query", "report", "audit")],
        }


def _watched(command: list[str]) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """What a sweep says at its end, what its processes took by kind, and its seconds."""
    cpu: dict[int, float] = {}
    kinds: dict[int, str] = {}
    peaks: dict[str, int] = {}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as stdout, _started(command, stdout) as driver:
        while driver.poll() is None:
            for process in (driver.pid, *descendants(driver.pid)):
                if (found := _usage_of(process)) is None:
                    continue
                cpu[process], anonymous, words = found
                kind = next((kind for word, kind in _KINDS.items() if word in words), None)
                kinds[process] = "driver" if process == driver.pid else kind or kinds.get(process, "others")
                peaks[kinds[process]] = max(peaks.get(kinds[process], 0), anonymous)
            time.sleep(_POLL_SECONDS)
        seconds = time.monotonic() - began
        stdout.seek(0)
        summary: dict[str, Any] = json.loads(stdout.read())
    total: dict[str, float] = {}
    for process, spent in cpu.items():
        total[kinds[process]] = total.get(kinds[process], 0.0) + spent
    parts = [
        {"part": kind, "cpu_seconds": round(spent, 1), "largest_mebibytes": round(peaks[kind] / 2**20)}
        for kind, spent in sorted(total.items(), key=lambda each: -each[1])
    ]
    return summary, parts, seconds


@contextmanager
def _started(command: list[str], stdout: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=stdout)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _usage_of(process: int) -> tuple[float, int, str] | None:
    """CPU seconds, bytes of memory of its own, and the command of a process; `None` if it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        words = (folder / "cmdline").read_text().replace("\0", " ")
        numbers = (folder / "stat").read_text().rpartition(")")[2].split()
        resident, shared = map(int, (folder / "statm").read_text().split()[1:3])
    except OSError:
        return None
    return (int(numbers[11]) + int(numbers[12])) / _TICKS, (resident - shared) * _PAGE, words


def _sizes(directory: Path) -> list[dict[str, Any]]:
    """Files and megabytes of each table."""
    found = []
    for table in ("trainings", "curves", "heads"):
        sizes = [file.stat().st_size for file in (directory / table).glob("*.parquet")]
        found.append({"table": table, "files": len(sizes), "megabytes": round(sum(sizes) / 1e6, 1)})
    return found


def _read(name: str, directory: Path) -> dict[str, Any]:
    words = [_QUERY] if name == "query" else []
    spent = spent_by(attnsweep_command(name, str(directory), *words), directory.parent)
    return {"command": name, **spent.figures()}


if __name__ == "__main__":
    main(measure)
