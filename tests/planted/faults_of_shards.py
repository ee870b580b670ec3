"""Planted faults in sweeps of several drivers: which trials each owns, and how all are read as one."""

from tests.planted.fault import Fault

_SHARDS = "tests/fault/test_shards.py"
_UNION = f"{_SHARDS}::test_the_union_is_the_sweep_of_one_driver"
_KILLED = f"{_SHARDS}::test_a_shard_that_was_killed_is_continued_while_another_process_has_its_neighbour"
_READERS = f"{_SHARDS}::test_every_reader_takes_the_directory_for_one_sweep"
_LACKING = f"{_SHARDS}::test_what_is_not_there_is_said"
_AT_ONCE = f"{_SHARDS}::test_of_drivers_that_begin_at_once_one_makes_the_sweep"
_OTHER = f"{_SHARDS}::test_a_driver_in_another_environment_is_refused"
_ONE_WAY = f"{_SHARDS}::test_a_directory_holds_one_sweep_divided_in_one_way"
_DRAWS = "tests/search_spaces/test_samplers.py::test_numbered_draws_are_those_of_optunas_sampler"
_STUDY = "orchestrator/running/study.py"
_SHARDING = "orchestrator/running/entry.py"

FAULTS_OF_SHARDS = (
    Fault(
        "drivers that all draw the first trials",
        _STUDY,
        "        number = self._shard.trial(self._n_asked)\n",
        "        number = self._n_asked\n",
        (_UNION,),
    ),
    Fault(
        "an audit by the numbers of a shard's study",
        _STUDY,
        "        return _by_the_sweeps_numbers(directory.of_shard, trials)\n",
        "        return trials\n",
        (_UNION,),
    ),
    Fault(
        "a shard that knows its trials by the sweep's numbers",
        _STUDY,
        "        number = self._shard.number(trial)\n",
        "        number = trial\n",
        (_UNION, _KILLED),
    ),
    Fault(
        "a budget of all trials for each driver",
        _STUDY,
        "max(self._shard.n_of(self._spec.trials) - self._n_asked, 0)",
        "max(self._spec.trials - self._n_asked, 0)",
        (_UNION,),
    ),
    Fault(
        "a sequence that begins with the second trial's point",
        "search_spaces/numbered_draws.py",
        "self._sequence.point(trial - 1)",
        "self._sequence.point(trial)",
        (_DRAWS,),
    ),
    Fault(
        "a first trial of qmc that is seeded like the others",
        "search_spaces/numbered_draws.py",
        "        return trial_seed(self.sweep, trial) if trial else self.sweep.seed % 2**32\n",
        "        return trial_seed(self.sweep, trial)\n",
        (_DRAWS,),
    ),
    Fault(
        "a point of the grid for each driver's own count",
        "search_spaces/numbered_draws.py",
        'system_attrs={"grid_id": trial}',
        'system_attrs={"grid_id": trial // 3}',
        (_DRAWS,),
    ),
    Fault(
        "a directory of shards that is read as an empty sweep",
        "orchestrator/ledger/fragments.py",
        "    if shards := shards_of(place):\n",
        "    if shards := []:\n",
        (_READERS,),
    ),
    Fault(
        "readers that open no more files than a shell allows",
        "orchestrator/ledger/fragments.py",
        "        allow_many_files()\n",
        "        pass\n",
        (f"{_SHARDS}::test_a_reader_opens_more_files_than_a_shell_allows",),
    ),
    Fault(
        "a sweep that is finished without the shards that have not begun",
        "orchestrator/storage/sweep_directory.py",
        "finished = len(courses) == self.shards and all(course.finished for course in courses)",
        "finished = all(course.finished for course in courses)",
        (_LACKING,),
    ),
    Fault(
        "a status that says nothing of missing shards",
        "orchestrator/cli/screen/status.py",
        '        yield f"shards      {directory.shortfall}"\n',
        "        pass\n",
        (_LACKING,),
    ),
    Fault(
        "runs in MLflow that drivers delete each other",
        "orchestrator/storage/sweep_record.py",
        'f"{self.sweep}.{self.shard.folder}" if self.shard else self.sweep',
        "self.sweep",
        (_UNION,),
    ),
    Fault(
        "drivers that share a sweep whose sampler learns",
        _SHARDING,
        "            spec.sampler not in LEARN_NOTHING,\n",
        "            False,\n",
        (f"{_SHARDS}::test_what_cannot_be_divided_is_refused",),
    ),
    Fault(
        "a driver that gives up when another writes the record",
        _SHARDING,
        "            if not SweepDirectory.is_there(where) and time.monotonic() > until:\n",
        "            if True:\n",
        (_AT_ONCE,),
    ),
    Fault(
        "a driver of other versions in the same sweep",
        _SHARDING,
        "    if changes := whole.changes(environment):\n",
        "    if changes := []:\n",
        (_OTHER,),
    ),
    Fault(
        "a driver of another engine in the same sweep",
        _SHARDING,
        "    if whole.engine != environment.engine:\n",
        "    if False:\n",
        (_OTHER,),
    ),
    Fault(
        "a sweep of three shards that a fourth driver joins",
        _SHARDING,
        "    if whole.shards != shard.count:\n",
        "    if False:\n",
        (_ONE_WAY,),
    ),
    Fault(
        "a sweep of shards that one driver goes on with",
        _SHARDING,
        "    if directory.shards:\n        raise",
        "    if False:\n        raise",
        (_ONE_WAY,),
    ),
    Fault(
        "a shard of another sweep that no audit sees",
        "orchestrator/audit/merged_and_divided.py",
        '            wrong.append("shard")\n',
        "            pass\n",
        (f"{_SHARDS}::test_audit_names_what_is_in_the_wrong_shard",),
    ),
    Fault(
        "a task of an array whose number nobody has checked",
        "orchestrator/cli/run_options.py",
        "    return index < count <= MOST_SHARDS\n",
        "    return True\n",
        ("tests/orchestrator/cli/test_run_options.py",),
    ),
)
