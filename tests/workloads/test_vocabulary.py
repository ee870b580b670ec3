"""The vocabulary of the ledger, importable without torch."""

import subprocess
import sys

from attnsweep.workloads.vocabulary import JUDGED_OUTCOMES, NO_ROLE, OUTCOMES, ROLES, STUCK_OUTCOMES


def test_what_is_stuck_and_what_a_workload_may_say_are_outcomes() -> None:
    told = {name for name, outcome in OUTCOMES.items() if "stuck" in outcome.sentence}
    assert set(STUCK_OUTCOMES) == told | {"runaway"}
    assert {*JUDGED_OUTCOMES, "pruned", "failed"} == set(OUTCOMES)
    assert list(ROLES)[-1] == NO_ROLE


def test_the_vocabulary_imports_no_torch() -> None:
    code = "import sys, attnsweep.workloads.vocabulary; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
