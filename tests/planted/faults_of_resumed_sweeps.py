"""Planted faults in what a run records, in the self-check at its end, and in trainings that are trained again."""

from tests.planted.fault import Fault

_TWO_RESUMES = "tests/orchestrator/running/test_two_resumes.py"
_SELF_CHECK = "tests/orchestrator/running/test_fault_of_self_check.py"

FAULTS_OF_RESUMED_SWEEPS = (
    Fault(
        "a record that is not read again under the lock",
        "orchestrator/running/session.py",
        "found = SweepDirectory.open(directory.place)\n            directory",
        "found = directory\n            directory",
        (_TWO_RESUMES,),
    ),
    Fault(
        "a run that records what it adds before it is refused",
        "orchestrator/running/session.py",
        "directory = enter(found)\n",
        "directory = enter(found)\n            found.record_as(directory)\n",
        (f"{_TWO_RESUMES}::test_a_run_that_is_refused_records_nothing",),
    ),
    Fault(
        "an environment that is checked only before the lock",
        "orchestrator/running/entry.py",
        "        if not accept_drift:\n",
        "        if not (accept_drift or found.environments.keys() - {environment.id}):\n",
        (f"{_TWO_RESUMES}::test_an_environment_that_another_run_has_accepted_meanwhile_is_checked_and_stays",),
    ),
    Fault(
        "a finished sweep that is trained by what only summarizes",
        "orchestrator/running/entry.py",
        "    if not found.finished:\n",
        "    if False:\n",
        (_TWO_RESUMES,),
    ),
    Fault(
        "a run that ends well although its self-check found a difference",
        "orchestrator/running_commands.py",
        "if summary.fault is not None or unkept is not None:",
        "if unkept is not None:",
        (_SELF_CHECK,),
    ),
    Fault(
        "a difference that nobody is told of",
        "orchestrator/running_commands.py",
        "        hooks.tell_fault(on_failure, place, summary.fault)\n",
        "        pass\n",
        (_SELF_CHECK,),
    ),
    Fault(
        "a difference that status does not know of",
        "orchestrator/report/screen/status.py",
        "    if fault:\n",
        "    if False:\n",
        (_SELF_CHECK,),
    ),
    Fault(
        "a difference that the report does not show",
        "orchestrator/report/templates/sweep.html.j2",
        "{% if report.fault %}",
        "{% if false %}",
        (_SELF_CHECK,),
    ),
)
