"""The seals of a journal: each line that attnsweep writes ends with a digest of all bytes since the line before it.

A seal is the line's last key, `chain`, which Optuna ignores. Each seal also covers the previous seal, so a line that is
changed, removed or replaced by another writer's makes a seal wrong. Lines of other programs have no seal; the next line
of the sweep covers them.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

_SEAL = re.compile(rb',"chain":"([0-9a-f]{16})"\}$')
_N_DIGITS = 16
_NOTE_KEYS = {"op_code", "worker_id", "study_id", "trial_id", "user_attr", "system_attr"}


class Chain:
    """The running digest of a journal's lines, from which their seals are made. Lines are given without their line
    ends."""

    def __init__(self) -> None:
        self._since = sha256()

    def seal(self, line: str) -> str:
        """Adds a line of this sweep (a JSON object) to the digest. Returns the line with its seal."""
        body = line.removesuffix("}")
        self._since.update(body.encode())
        seal = self._close()
        return f'{body},"chain":"{seal}"}}'

    def follow(self, line: bytes) -> bool | None:
        """Adds a line that was read to the digest. Returns whether the line's seal is right; `None` if it has no
        seal."""
        match = _SEAL.search(line)
        if match is None:
            self._since.update(line + b"\n")
            return None
        self._since.update(line[: match.start()])
        fits = self._close() == match[1].decode()
        # The digest continues from the seal (chained digest) in the file, so one damaged line does not make all later
        # seals wrong.
        self._since = sha256(match[1])
        return fits

    def _close(self) -> str:
        seal = self._since.hexdigest()[:_N_DIGITS]
        self._since = sha256(seal.encode())
        return seal


@dataclass(frozen=True, slots=True)
class Seals:
    """The result of checking the seals of all lines of a journal. A seal is a digest of the lines so far.

    Attributes:
        chain: The digest after the last line.
        n_lines: Number of lines.
        n_sealed: Number of lines with a seal.
        broken: The numbers, from 1, of the lines whose seal is wrong.
        foreign: The numbers of the lines after the first sealed one that have no seal.
        n_open: Number of lines without a seal at the end, which no later seal covers yet.
    """

    chain: Chain
    n_lines: int
    n_sealed: int
    broken: tuple[int, ...]
    foreign: tuple[int, ...]
    n_open: int


def read_seals(lines: Iterable[bytes]) -> Seals:
    """Checks the seals (chained digests) of all lines of a journal."""
    chain, n_lines, last = Chain(), 0, 0
    n_sealed, broken, foreign = 0, [], []
    for n_lines, line in enumerate(lines, start=1):
        fits = chain.follow(line)
        if fits is None:
            foreign += [n_lines] if n_sealed else []
            continue
        n_sealed, last = n_sealed + 1, n_lines
        if not fits:
            broken.append(n_lines)
    return Seals(chain, n_lines, n_sealed, tuple(broken), tuple(foreign), n_lines - last)


def is_note(line: bytes) -> bool:
    """Returns whether an entry changes attributes alone. Such an entry does not change how Optuna numbers the
    trials."""
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.keys() <= _NOTE_KEYS and ("user_attr" in entry or "system_attr" in entry)
