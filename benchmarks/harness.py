"""What all benchmarks share: arguments, clocks, turns, processes apart, a table and one JSON object.

A script is its cases and its words. It has one function whose named arguments, with their defaults, are those of its
command; what the function returns is printed as JSON, also to the file that `--out` names, with the machine and its
load. Lists of rows are shown as tables on stderr. Light to import: no torch, no attnsweep.

Run as a program, this module watches a command for `spent_by`.
"""

import argparse
import inspect
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

K = TypeVar("K")
_APART, _FOUND = "--apart", "found.json"
_GROUPS = Path("/sys/fs/cgroup")


def main(measure: Callable[..., Mapping[str, Any]]) -> None:
    """Runs the script that is being executed.

    Args:
        measure: Its arguments become options: numbers and words take one value, tuples several, False is a switch.
    """
    script = sys.modules["__main__"]
    if sys.argv[1:2] == [_APART]:
        found = getattr(script, sys.argv[2])(**json.loads(sys.argv[3]))
        Path(_FOUND).write_text(json.dumps(found))
        return
    options = _options(measure, script.__doc__ or "")
    out = options.pop("out")
    load = _load()
    found = measure(**options)
    report = {
        "benchmark": Path(sys.argv[0]).stem,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": [load, _load()],
        "python": platform.python_version(),
        "torch": version("torch"),
        **found,
    }
    for name, rows in found.items():
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            _show(name, rows)
    text = json.dumps(report, indent=2)
    if out is not None:
        out.write_text(text + "\n")
    print(text)


def _options(measure: Callable[..., object], words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, parameter in inspect.signature(measure).parameters.items():
        flag, default = "--" + name.replace("_", "-"), parameter.default
        if isinstance(default, bool):
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, tuple):
            shown = " ".join(map(str, default))
            parser.add_argument(flag, type=type(default[0]), nargs="+", default=default, help=f"default: {shown}")
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    parser.add_argument("--out", type=Path, help="a file for the JSON")
    return vars(parser.parse_args())


def chosen(cases: Iterable[str], beginnings: Iterable[str]) -> list[str]:
    """The cases that have these names, or names that begin so; the process ends if a word begins none."""
    cases, found = list(cases), set[str]()
    for word in beginnings:
        named = [word] if word in cases else [case for case in cases if case.startswith(word)]
        if not named:
            print(f"got {word!r}, expected the beginning of one of: {'; '.join(cases)}", file=sys.stderr)
            sys.exit(2)
        found.update(named)
    return [case for case in cases if case in found]


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _show(name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    flat = [_flat(row) for row in rows]
    heads = list(dict.fromkeys(head for row in flat for head in row))
    lines = [heads, *([row.get(head, "") for head in heads] for row in flat)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{name}", file=sys.stderr)
    for line in lines:
        print("  ".join(map(str.rjust, line, widths)), file=sys.stderr)


def _flat(row: Mapping[str, Any], before: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in row.items():
        found |= _flat(value, f"{before}{name} ") if isinstance(value, Mapping) else {f"{before}{name}": str(value)}
    return found


def cpu_seconds() -> float:
    """Of this process, and of those that it started and waited for. Other programs disturb them little."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def timed(call: Callable[[], object], clock: Callable[[], float] = cpu_seconds) -> float:
    """The seconds of a call."""
    began = clock()
    call()
    return clock() - began


def in_turns(
    calls: Mapping[K, Callable[[], object]], rounds: int, clock: Callable[[], float] = cpu_seconds
) -> dict[K, float]:
    """The least seconds of each call. They take turns, so that load disturbs all alike; a first round warms up."""
    taken = [{key: timed(call, clock) for key, call in calls.items()} for _ in range(1 + rounds)]
    return {key: min(each[key] for each in taken[1:]) for key in calls}


def step_seconds(
    advances: Mapping[K, Callable[[int], object]],
    rounds: int,
    seconds: float = 1.0,
    clock: Callable[[], float] = cpu_seconds,
) -> dict[K, float]:
    """The least seconds of a step of each, in turns of about so many seconds."""
    n_steps = {}
    for key, advance in advances.items():
        advance(1)  # compiles
        tried = 4
        while (taken := timed(partial(advance, tried), clock)) < seconds / 4:
            tried *= 2
        n_steps[key] = max(1, int(tried * seconds / taken))
    calls = {key: partial(advance, n_steps[key]) for key, advance in advances.items()}
    return {key: taken / n_steps[key] for key, taken in in_turns(calls, rounds, clock).items()}


@dataclass(frozen=True)
class Spent:
    """What a command took.

    Attributes:
        cpu_seconds: Of all processes that it started, whoever their parents were, where Linux lets us count them by a
            control group; otherwise of those that were waited for.
        is_all: Whether a control group counted.
        peak_mebibytes: Of its largest process.
        stdout: What it printed.
    """

    seconds: float
    cpu_seconds: float
    is_all: bool
    peak_mebibytes: float
    stdout: str = ""

    def figures(self) -> dict[str, Any]:
        """For a report."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "cpu_of_all_processes": self.is_all,
            "peak_mebibytes": round(self.peak_mebibytes, 1),
        }


def spent_by(command: Sequence[str], folder: str | Path, **environment: str) -> Spent:
    """Runs a command in a folder to its end; raises `CalledProcessError` if it fails.

    It runs below a small process: Linux counts the memory of the forking parent in the child's peak. The environment is
    ours without `RAY_ADDRESS`, and with these variables.
    """
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | environment
    with tempfile.TemporaryDirectory() as place, Path(place, "stdout").open("w+") as stdout:
        watched = [sys.executable, str(Path(__file__).resolve()), f"{place}/spent", *command]
        subprocess.run(watched, cwd=folder, env=variables, stdout=stdout, check=True)
        seconds, cpu, is_all, peak = json.loads(Path(place, "spent").read_text())
        stdout.seek(0)
        return Spent(seconds, cpu, is_all, peak, stdout.read())


def attnsweep_command(*words: str) -> list[str]:
    """The command `attnsweep` of this environment."""
    return [str(Path(sys.executable).with_name("attnsweep")), *words]


def command_of(function: Callable[..., object], **arguments: Any) -> list[str]:
    """The command that calls a function of the script in a process of its own."""
    return [sys.executable, str(Path(sys.argv[0]).resolve()), _APART, function.__name__, json.dumps(arguments)]


def apart(function: Callable[..., object], **arguments: Any) -> tuple[Any, Spent]:
    """Calls a function of the script in a fresh process, in an empty folder: what it returns, and what it took."""
    with tempfile.TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/mlflow.db"
        spent = spent_by(command_of(function, **arguments), folder, MLFLOW_TRACKING_URI=database)
        sys.stderr.write(spent.stdout)
        found = json.loads(Path(folder, _FOUND).read_text())
    print(f"{function.__name__} {arguments}: {spent.figures()}", file=sys.stderr, flush=True)
    return found, spent


def descendants(process: int) -> list[int]:
    """The processes that this one has started, and those that they have."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(each) for each in children.read_text().split()]
    return found + [each for child in found for each in descendants(child)]


def _watch(report: Path, command: Sequence[str]) -> int:
    group = _join_new_group()
    began = time.monotonic()
    code = subprocess.run(command, check=False).returncode
    seconds, used = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime if group is None else _leave(group)
    report.write_text(json.dumps([seconds, cpu, group is not None, used.ru_maxrss / 1024]))
    return code


def _join_new_group() -> Path | None:
    """A control group of our own: of version 1, where CPU time has a hierarchy of its own, or of version 2."""
    roots = [root for root in (_GROUPS / "cpuacct", _GROUPS) if (root / "cgroup.procs").exists()]
    try:
        group = roots[0] / f"attnsweep-{os.getpid()}"
        group.mkdir()
        (group / "cgroup.procs").write_text(f"{os.getpid()}")
    except (OSError, IndexError):
        return None
    return group


def _leave(group: Path) -> float:
    """Moves all that still runs to the group above; returns the CPU seconds of the group."""
    of_version_1 = group / "cpuacct.usage"
    if of_version_1.exists():
        seconds = int(of_version_1.read_text()) / 1e9
    else:
        seconds = int((group / "cpu.stat").read_text().split()[1]) / 1e6
    for process in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (group.parent / "cgroup.procs").write_text(process)
    group.rmdir()
    return seconds


if __name__ == "__main__":
    sys.exit(_watch(Path(sys.argv[1]), sys.argv[2:]))
