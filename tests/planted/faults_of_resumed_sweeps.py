"""Planted faults in what a run records, in the self-check at its end, and in trainings that are trained again."""

from tests.planted.fault import Fault

_TWO_RESUMES = "tests/orchestrator/running/test_one_run.py"
_RETRAINING = "tests/orchestrator/inspection/test_retraining.py"
_WEIGHTS = "tests/orchestrator/running/test_one_run.py"
_SELF_CHECK = "tests/orchestrator/running/test_self_check.py"

FAULTS_OF_RESUMED_SWEEPS = (
    Fault(
        "trials of earlier sweeps that the sampler does not see",
        "search_spaces/optuna_internals.py",
        "return [*self._earlier, *own]",
        "return own",
        ("tests/orchestrator/running/test_warm_start.py",),
    ),
    Fault(
        "a store of runs keeps what a trial was before its failed trainings were trained again",
        "orchestrator/tracking/run_store.py",
        "trial in retried and ended != (retried[trial] or 0) // self.resolution * self.resolution",
        "trial in retried and not ended",
        ("tests/orchestrator/tracking/test_other_stores.py",),
    ),
    Fault(
        "failed trainings are forgotten before the record says that they are trained again",
        "orchestrator/storage/sweep_directory.py",
        " or changed.retried != self.retried:",
        ":",
        ("tests/orchestrator/running/test_resume_options.py",),
    ),
    Fault(
        "a record that is not read again under the lock",
        "orchestrator/running/one_run.py",
        "recorded = SweepDirectory.open(directory.place)\n            directory",
        "recorded = directory\n            directory",
        (_TWO_RESUMES,),
    ),
    Fault(
        "a run that records what it adds before it is refused",
        "orchestrator/running/one_run.py",
        "directory = enter(recorded)\n",
        "directory = enter(recorded)\n            recorded.record_as(directory)\n",
        (f"{_TWO_RESUMES}::test_a_run_that_is_refused_records_nothing",),
    ),
    Fault(
        "an environment that is checked only before the lock",
        "orchestrator/running/entry.py",
        "        if not accept_drift and (",
        "        if not (accept_drift or directory.environments.keys() - {environment.id}) and (",
        (f"{_TWO_RESUMES}::test_an_environment_that_another_run_has_accepted_meanwhile_is_checked_and_stays",),
    ),
    Fault(
        "a finished sweep that is trained by what only summarizes",
        "orchestrator/running/entry.py",
        "    if not directory.finished:\n",
        "    if False:\n",
        (_TWO_RESUMES,),
    ),
    Fault(
        "a run that ends well although its self-check found a difference",
        "orchestrator/cli/ending.py",
        "if summary.fault is not None or unkept is not None:",
        "if unkept is not None:",
        (_SELF_CHECK,),
    ),
    Fault(
        "a difference that nobody is told of",
        "orchestrator/cli/ending.py",
        "        tell_fault(on_failure, place, summary.fault)\n",
        "        pass\n",
        (_SELF_CHECK,),
    ),
    Fault(
        "a difference that status does not know of",
        "orchestrator/cli/screen/status.py",
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
    Fault(
        "a training that is trained again by the sweep's latest engine",
        "orchestrator/inspection/retraining.py",
        '    engine = directory.engine_of(row["environment"])\n',
        "    engine = directory.engine\n",
        ("tests/orchestrator/running/test_engine_choice.py::test_a_sweep_in_blocks_is_replayed_and_resumed_in_blocks",),
    ),
    Fault(
        "a training of a GPU that is trained again on a CPU",
        "orchestrator/inspection/retraining.py",
        'if row["device"] == "cuda" and torch',
        'if row["device"] == "gpu" and torch',
        (_RETRAINING,),
    ),
    Fault(
        "a page that explains another ending in silence",
        "orchestrator/inspection/why_page.py",
        "if analysis.difference else []",
        "if False else []",
        (_RETRAINING,),
    ),
    Fault(
        "trained weights of another ending in silence",
        "orchestrator/inspection/kept_weights.py",
        "    if end.difference:\n        _log",
        "    if False:\n        _log",
        (_RETRAINING,),
    ),
    Fault(
        "weights of another ending that are kept",
        "orchestrator/inspection/kept_weights.py",
        "if again.state is None or again.difference:",
        "if again.state is None:",
        (_RETRAINING,),
    ),
    Fault(
        "one training that raises when trained again, and all of its pack with it",
        "orchestrator/inspection/retraining.py",
        "            if len(tasks) > 1:\n",
        "            if False:\n",
        (_RETRAINING,),
    ),
    Fault(
        "trainings of several shapes in the wrong order",
        "orchestrator/inspection/retraining.py",
        "return [retrained[training_id] for training_id in training_ids]",
        "return list(retrained.values())",
        (_RETRAINING,),
    ),
    Fault(
        "weights that cannot be kept, and a traceback in the place of the run's end",
        "orchestrator/cli/ending.py",
        "    except Exception as error:",
        "    except KeyError as error:",
        (_WEIGHTS,),
    ),
    Fault(
        "weights that are missing after a run that ended well",
        "orchestrator/cli/ending.py",
        "if summary.fault is not None or unkept is not None:",
        "if summary.fault is not None:",
        (_WEIGHTS,),
    ),
    Fault(
        "missing weights that nobody is told of",
        "orchestrator/cli/ending.py",
        "        tell_fault(on_failure, place, unkept)\n",
        "        pass\n",
        (_WEIGHTS,),
    ),
    Fault(
        "a command that does not bring the missing weights",
        "orchestrator/cli/ending.py",
        "if {*trials} <= {*sweep.keep_weights} else",
        "if True else",
        (_WEIGHTS,),
    ),
)
