"""Plants each fault of the table in a copy of this repository: `python -m tests.planted [PART OF A FILE'S NAME ...]`.

Exits with 1 if one survives, cannot be planted, or its tests do not run.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.planted.fault import LOG, Fault, caught, run_tests
from tests.planted.faults_of_claims import FAULTS_OF_CLAIMS
from tests.planted.faults_of_engines import FAULTS_OF_ENGINES
from tests.planted.faults_of_forks import FAULTS_OF_FORKS
from tests.planted.faults_of_interventions import FAULTS_OF_INTERVENTIONS
from tests.planted.faults_of_journals import FAULTS_OF_JOURNALS
from tests.planted.faults_of_many import FAULTS_OF_MANY
from tests.planted.faults_of_outcomes import FAULTS_OF_OUTCOMES
from tests.planted.faults_of_problems import FAULTS_OF_PROBLEMS
from tests.planted.faults_of_resumed_sweeps import FAULTS_OF_RESUMED_SWEEPS
from tests.planted.faults_of_shards import FAULTS_OF_SHARDS
from tests.planted.faults_of_starts import FAULTS_OF_STARTS
from tests.planted.faults_of_storage import FAULTS_OF_STORAGE
from tests.planted.faults_of_stored_files import FAULTS_OF_STORED_FILES
from tests.planted.faults_of_sweeps import FAULTS_OF_SWEEPS
from tests.planted.faults_of_trainings import FAULTS_OF_TRAININGS

ROOT = Path(__file__).parents[2]
FAULTS = (
    *FAULTS_OF_CLAIMS,
    *FAULTS_OF_ENGINES,
    *FAULTS_OF_FORKS,
    *FAULTS_OF_INTERVENTIONS,
    *FAULTS_OF_JOURNALS,
    *FAULTS_OF_MANY,
    *FAULTS_OF_OUTCOMES,
    *FAULTS_OF_PROBLEMS,
    *FAULTS_OF_RESUMED_SWEEPS,
    *FAULTS_OF_SHARDS,
    *FAULTS_OF_STARTS,
    *FAULTS_OF_STORAGE,
    *FAULTS_OF_STORED_FILES,
    *FAULTS_OF_SWEEPS,
    *FAULTS_OF_TRAININGS,
)


def main() -> int:
    """Prints a table of the faults and their results."""
    faults = [fault for fault in FAULTS if _is_chosen(fault)]
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        tree = Path(folder) / "tree"
        _copy(tree)
        tests = sorted({test for fault in faults for test in fault.tests})
        if status := run_tests(tests, tree):
            print((tree / LOG).read_text()[-4000:])
            print(f"without a fault the tests must pass: pytest exited with {status}")
            return 1
        survivors = [fault for fault in faults if not _is_caught(fault, tree)]
    print(f"{len(faults) - len(survivors)} of {len(faults)} caught")
    for fault in survivors:
        print(
            f"not caught: {fault.what}\n  {fault.file}: {fault.right!r} -> {fault.wrong!r}\n  {', '.join(fault.tests)}"
        )
    return 1 if survivors or not faults else 0


def _is_chosen(fault: Fault) -> bool:
    return not sys.argv[1:] or any(part in fault.file for part in sys.argv[1:])


def _is_caught(fault: Fault, tree: Path) -> bool:
    begun = time.monotonic()
    finding = caught(fault, tree)
    print(f"{finding:11}  {time.monotonic() - begun:4.0f} s  {fault.file:55}  {fault.what}", flush=True)
    return finding == "caught"


def _copy(tree: Path) -> None:
    """Copies the files that git tracks, with uncommitted changes; symbolic links stay links."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, tree / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


if __name__ == "__main__":
    sys.exit(main())
