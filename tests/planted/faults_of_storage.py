"""Planted faults in what is concluded from a file that cannot be read, a full disk, and a command that was killed."""

from tests.planted.fault import Fault

_LEDGER = "tests/orchestrator/ledger"
_RUNNING = "tests/orchestrator/running"
_STORAGE = "tests/orchestrator/storage"

FAULTS_OF_STORAGE = (
    Fault(
        "trainings of another sweep are doubles of this one's",
        "orchestrator/ledger/verification.py",
        'columns=["sweep", "trial", "replicate"]',
        'columns=["trial", "replicate"]',
        ("tests/orchestrator/ledger/test_ledger_verification.py::test_trainings_of_another_sweep_are_no_doubles",),
    ),
    Fault(
        "an error of the disk counts as damage",
        "orchestrator/storage/errors.py",
        "return error.errno in _DAMAGE",
        "return error.errno is not errno.EACCES",
        (f"{_LEDGER}/test_passing_faults.py",),
    ),
    Fault(
        "a folder that cannot be read is an empty one",
        "orchestrator/storage/local.py",
        "suppress(FileNotFoundError, NotADirectoryError):\n            return [path.name",
        "suppress(OSError):\n            return [path.name",
        (f"{_LEDGER}/test_passing_faults.py",),
    ),
    Fault(
        "gc cannot free a full disk",
        "orchestrator/storage/local.py",
        "if error.errno not in _NO_ROOM:",
        "if error.errno:",
        ("tests/orchestrator/storage/test_full_disk.py",),
    ),
    Fault(
        "a merge that was cut short is read as a sweep",
        "orchestrator/storage/sweep_directory.py",
        "if directory.sources and not directory.finished:",
        "if not directory.sources and directory.finished:",
        (f"{_LEDGER}/test_killed_commands.py",),
    ),
    Fault(
        "what a merge that was cut short had written stays",
        "orchestrator/analysis/merging.py",
        "        _remove_rows(directory.place)\n",
        "",
        (f"{_LEDGER}/test_killed_commands.py",),
    ),
    Fault(
        "two trials of several sweeps have one number",
        "orchestrator/storage/sources.py",
        "if last >= TRIALS_APART:",
        "if last > TRIALS_APART:",
        ("tests/orchestrator/analysis/test_merging.py",),
    ),
    Fault(
        "a sweep that was killed at its start is no sweep",
        "orchestrator/ledger/fragments.py",
        'if not place.has_folder("trainings") and not SweepDirectory.is_there(place):',
        'if not place.has_folder("trainings"):',
        (f"{_RUNNING}/test_no_rows.py",),
    ),
    Fault(
        "the driver holds the states of packs that wait",
        "orchestrator/running/plan.py",
        "self._again.append(replace(order, checkpoint=None))",
        "self._again.append(order)",
        (f"{_RUNNING}/test_plan.py",),
    ),
    Fault(
        "a checkpoint that cannot be read now is removed",
        "orchestrator/running/checkpoints.py",
        "_DAMAGE = (OSError, ValueError, TypeError, KeyError)",
        "_DAMAGE = (Exception,)",
        (f"{_LEDGER}/test_passing_faults.py",),
    ),
    Fault(
        "a file is set aside after one look",
        "orchestrator/ledger/verification.py",
        "for name, fault in examine(place).damaged.items():",
        "for name, fault in suspects.items():",
        (f"{_LEDGER}/test_ledger_verification.py",),
    ),
    Fault(
        "trainings that are there twice count twice",
        "orchestrator/ledger/writer.py",
        "doubles = set_doubles_aside(place, snapshot)",
        "doubles: dict[str, str] = {}",
        (f"{_LEDGER}/test_ledger_verification.py",),
    ),
    Fault(
        "trainings that are there twice are merged into one file",
        "orchestrator/ledger/compaction.py",
        "    refuse_doubles(place, chosen)\n",
        "",
        (f"{_LEDGER}/test_ledger_verification.py",),
    ),
    Fault(
        "a merged directory takes over trainings that are there twice",
        "orchestrator/analysis/merging.py",
        "        refuse_doubles(sweep.place, snapshot)\n",
        "        pass\n",
        ("tests/orchestrator/analysis/test_merging.py",),
    ),
    Fault(
        "a disk that does not answer is the user's mistake",
        "orchestrator/storage/errors.py",
        "return error.errno in MACHINE_ERRORS",
        "return False",
        (f"{_STORAGE}/test_place_names.py",),
    ),
    Fault(
        "a store that does not answer is the user's mistake",
        "orchestrator/storage/s3_client.py",
        "if fix is None or _IS_LATE.search(answer):",
        "if fix is None:",
        (f"{_STORAGE}/test_s3_client.py",),
    ),
    Fault(
        "an audit takes Ctrl-C for damage",
        "orchestrator/audit/audit.py",
        'refuse_if_interrupted()\n        return Problem(f"not checked: {subject}: {error_in_one_line(error)}", fix)',
        'return Problem(f"not checked: {subject}: {error_in_one_line(error)}", fix)',
        ("tests/fault/test_stops.py::test_an_error_that_a_library_makes_of_ctrl_c_is_no_fault",),
    ),
    Fault(
        "a user without a name or a home",
        "orchestrator/cli/main.py",
        "    name_unknown_user()\n",
        "",
        ("tests/orchestrator/storage/test_user_state.py",),
    ),
)
