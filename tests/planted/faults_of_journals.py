"""Mistakes somebody could make in the study's journal and its lease, each with the tests that should notice it."""

from tests.planted.fault import Fault

_RUNNING, _STORAGE = "tests/orchestrator/running", "tests/orchestrator/storage"
_CHAIN, _PIECES = f"{_RUNNING}/test_journal.py", f"{_RUNNING}/test_study_storage.py"
_FILE = f"{_RUNNING}/test_journal.py"
_IN_A_STORE = "tests/end_to_end/test_object_store_sweeps.py"

FAULTS_OF_JOURNALS = (
    Fault(
        "a digest of one line alone, not of the one before",
        "orchestrator/running/journal.py",
        "        self._since = sha256(match[1])\n",
        "        self._since = sha256()\n",
        (_CHAIN,),
    ),
    Fault(
        "notes that the next digest does not cover",
        "orchestrator/running/journal.py",
        '            self._since.update(line + b"\\n")\n',
        "",
        (_CHAIN,),
    ),
    Fault(
        "a last line whose digest is damaged passes for a note",
        "orchestrator/running/journal.py",
        " and entry.keys() <= _NOTE_KEYS and",
        " and",
        (_CHAIN,),
    ),
    Fault(
        "a changed journal is continued",
        "orchestrator/running/journal.py",
        "        if seals.broken:\n",
        "        if False:\n",
        (_CHAIN,),
    ),
    Fault(
        "notes written during a sweep are left out of the digest",
        "orchestrator/running/journal.py",
        "            self._chain.follow(note)\n",
        "            pass\n",
        (_CHAIN,),
    ),
    Fault(
        "a write that a disk has cut short passes for a whole one",
        "orchestrator/running/journal.py",
        "unwritten = unwritten[file.write(unwritten) :]",
        "unwritten = unwritten[file.write(unwritten) + len(unwritten) :]",
        (_FILE,),
    ),
    Fault(
        "a lock that leads nowhere is waited for without end",
        "orchestrator/running/journal.py",
        "link.lstat()",
        "link.stat()",
        (_FILE,),
    ),
    Fault(
        "pieces that overwrite",
        "orchestrator/running/study_storage.py",
        'swap_text(f"{self._folder}/{name}", text, None) is None',
        'put_text(f"{self._folder}/{name}", text) is not None',
        (_PIECES,),
    ),
    Fault(
        "a piece whose answer was lost counts as another's",
        "orchestrator/running/study_storage.py",
        "            if stored is None or stored.text != text:\n",
        "            if True:\n",
        (_PIECES,),
    ),
    Fault(
        "writers that begin alike",
        "orchestrator/running/study_storage.py",
        "_WRITER: uuid.uuid4().hex",
        '_WRITER: "me"',
        (_PIECES,),
    ),
    Fault(
        "a writer's first piece goes when pieces are joined",
        "orchestrator/running/study_storage.py",
        "- {name, *journal.first}",
        "- {name}",
        (_PIECES,),
    ),
    Fault(
        "a gap in the pieces is passed over",
        "orchestrator/running/study_storage.py",
        "        if number != expected:\n",
        "        if False:\n",
        (_PIECES,),
    ),
    Fault(
        "a gap in the pieces of earlier versions is passed over",
        "orchestrator/running/study_storage.py",
        "if begins is not None and begins > len(lines):",
        "if False:",
        (_PIECES,),
    ),
    Fault(
        "a piece that does not continue the others is read",
        "orchestrator/running/study_storage.py",
        "if bad := sorted({*seals.broken, *seals.foreign}):",
        "if bad := []:",
        (_PIECES,),
    ),
    Fault(
        "pieces of a writer that lost the sweep are not named",
        "orchestrator/audit/check_files.py",
        "(problem,) if lost else ()",
        "()",
        (_PIECES,),
    ),
    Fault(
        "a renewal that was given up is another's",
        "orchestrator/storage/locks.py",
        'startswith(f"{self._holder} ")',
        'startswith("nobody")',
        (f"{_STORAGE}/test_locks.py",),
    ),
    Fault(
        "a lost lease is the user's mistake",
        "orchestrator/storage/locks.py",
        "class LostLeaseError(StoreError):",
        "class LostLeaseError(UserError):",
        (f"{_IN_A_STORE}::test_a_driver_whose_lease_another_has_writes_nothing_more_and_ends_with_a_fault",),
    ),
    Fault(
        "requests that write last longer than the lease",
        "orchestrator/storage/s3.py",
        "open_store(bucket, prefix, WRITE_SECONDS)",
        "open_store(bucket, prefix)",
        (f"{_STORAGE}/test_s3_client.py",),
    ),
)
