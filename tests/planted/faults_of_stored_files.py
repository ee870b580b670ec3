"""Mistakes somebody could make in the digests of what a sweep stores, each with the tests that should notice it."""

from tests.planted.fault import Fault

_BYTES = "tests/orchestrator/audit/test_every_byte.py"
_RECORDS = "tests/orchestrator/storage/test_record.py"

FAULTS_OF_STORED_FILES = (
    Fault(
        "a record's spelling is not looked at",
        "orchestrator/storage/record.py",
        "                is_as_written = text == _written(content)\n",
        "                is_as_written = True\n",
        (_RECORDS,),
    ),
    Fault(
        "ends of lines are replaced in reading",
        "orchestrator/storage/local.py",
        "regular_file(self.path / name).read_bytes().decode()",
        'regular_file(self.path / name).read_text(encoding="utf-8")',
        (_RECORDS,),
    ),
    Fault(
        "an audit passes over checkpoints and kept weights",
        "orchestrator/audit/check_files.py",
        "            if not is_as_written:\n",
        "            if False:\n",
        (_BYTES,),
    ),
    Fault(
        "an audit passes over the records of merged sweeps",
        "orchestrator/audit/merged_and_divided.py",
        ", *check_stored(directory))",
        ",)",
        (_BYTES,),
    ),
    Fault(
        "an audit passes over what is stored beside the tables",
        "orchestrator/audit/audit.py",
        ", *check_stored(directory))",
        ",)",
        (_BYTES,),
    ),
    Fault(
        "folders that cannot be listed are passed over",
        "orchestrator/storage/local.py",
        "os.walk(self.path, onerror=failed)",
        "os.walk(self.path)",
        ("tests/orchestrator/ledger/test_passing_faults.py",),
    ),
    Fault(
        "an opened file that cannot be looked at counts as damaged",
        "orchestrator/storage/local.py",
        "            if error.errno is not None:\n                raise\n            # Opening",
        "            raise\n            # Opening",
        ("tests/fault/injection/test_failing_calls.py::test_an_opened_file_that_cannot_be_looked_at_is_not_damaged",),
    ),
)
