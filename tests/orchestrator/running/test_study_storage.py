"""The journal in an object store, whatever becomes of requests and writers: one chain, no gap that is passed over.

The study in it continues after an interruption or a kill as on a disk.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from attnsweep.orchestrator.audit.check_files import check_journal
from attnsweep.orchestrator.running import study_storage
from attnsweep.orchestrator.running.study import Asked, Configuration, Study
from attnsweep.orchestrator.running.study_storage import JournalPieces, read_pieces
from attnsweep.orchestrator.storage.errors import StoreError
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.s3 import ObjectPrefix
from attnsweep.orchestrator.storage.sweep_directory import STUDY_FILE, SweepDirectory
from attnsweep.search_spaces import Float, Sweep
from attnsweep.search_spaces.dimensions import Dimension
from attnsweep.search_spaces.sweep import Sampler
from attnsweep.workloads.errors import UserError
from tests.orchestrator.storage.object_store import new_prefix

FATES = ("arrives", "arrives", "arrives", "twice", "unanswered", "late", "late", "lost")
STEPS = ("writes", "writes", "wakes", "wakes", "takes over", "is delivered")


@dataclass
class Network:
    """A way to a store on which requests to write are repeated, delayed or lost. `fate` says it of the next one."""

    store: Any
    fate: str = "arrives"
    late: list[Callable[[], Any]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, *given: Any, **named: Any) -> Any:
        return self._send(lambda: self.store.put(*given, **named))

    def delete(self, *given: Any) -> Any:
        return self._send(lambda: self.store.delete(*given))

    def deliver(self, index: int) -> None:
        """Lets a delayed request arrive. Nobody waits for its answer."""
        try:
            self.late.pop(index)()
        except Exception:  # noqa: BLE001  # A refusal, of whatever kind.
            event("a late request is refused")

    def _send(self, request: Callable[[], Any]) -> Any:
        fate, self.fate = self.fate, "arrives"
        if fate == "late":
            self.late.append(request)
        elif fate != "lost":
            answer = request()
            if fate == "arrives":
                return answer
            if fate == "twice":
                return request()
        raise GenericError("no answer")


def _place(network: Network) -> ObjectPrefix:
    return ObjectPrefix("memory://sweep", network.store, network)  # type: ignore[arg-type]


def _bodies(lines: list[str]) -> list[str]:
    """The lines without their seals, and without the first ones of writers."""
    bodies = [line.partition(',"chain"')[0].removesuffix("}") + "}" for line in lines]
    return [body for body in bodies if "attnsweep:writer" not in body]


@dataclass
class Writer:
    """A process that continues the journal until a save fails, as a sweep's driver does.

    Attributes:
        view: The lines that it knows to be in the journal.
        unsure: The lines of the save that failed, which may be in the journal.
    """

    place: ObjectPrefix
    name: str
    view: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)
    has_failed: bool = False

    def __post_init__(self) -> None:
        self.journal = JournalPieces(self.place, STUDY_FILE)
        self.view = _bodies(self.journal.load())

    def save(self, number: int) -> None:
        # Lines that two writers may have in common: a sampler that is seeded draws the same.
        lines = [f'{{"value":{number}}}', f'{{"value":{number + 1}}}']
        try:
            self.journal.append(lines)
        except UserError:
            self.unsure, self.has_failed = lines, True
        else:
            self.view = [*self.view, *lines]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(FATES), st.integers(0, 5)), min_size=5, max_size=30),
    st.randoms(use_true_random=False),
)
def test_whatever_happens_the_journal_is_that_of_the_last_writer(steps: list[tuple[str, str, int]], order: Any) -> None:
    """Earlier writers wake up and go on, and requests to write arrive late, twice or not at all."""
    network = Network(MemoryStore())
    place = _place(network)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_storage, "_MOST_PIECES", 3)
        holder = Writer(place, "0")
        earlier: list[Writer] = []
        for number, (step, fate, which) in enumerate(steps):
            if step == "is delivered" and network.late:
                network.deliver(which % len(network.late))
                continue
            network.fate = fate
            if step == "takes over" or holder.has_failed:
                try:
                    successor = Writer(place, str(number))
                except StoreError:
                    continue
                earlier.append(holder)
                holder = successor
            elif step == "wakes" and earlier:
                woken = earlier[which % len(earlier)]
                if not woken.has_failed:
                    woken.save(number)
                    event("an earlier writer wakes")
                    assert woken.has_failed
            else:
                holder.save(number)
            network.fate = "arrives"
            _check(place, holder)
        order.shuffle(network.late)
        while network.late:
            network.deliver(0)
            _check(place, holder)
        # A further process takes over and goes on.
        last = Writer(place, "last")
        assert last.view in (holder.view, holder.view + holder.unsure)
        for number in range(5):
            last.save(number)
        assert not last.has_failed
        _check(place, last)


def _check(place: ObjectPrefix, holder: Writer) -> None:
    held = _bodies(read_pieces(place, STUDY_FILE).lines)
    assert held in (holder.view, holder.view + holder.unsure)


def _journal(n_saves: int) -> tuple[ObjectPrefix, Writer]:
    place = _place(Network(MemoryStore()))
    writer = Writer(place, "0")
    for number in range(n_saves):
        writer.save(number)
    return place, writer


def test_a_piece_that_is_missing_is_refused_by_name() -> None:
    place, _ = _journal(5)
    place.remove(STUDY_FILE, ["piece-00000003.jsonl"])
    for read in (lambda: read_pieces(place, STUDY_FILE), lambda: Writer(place, "1")):
        with pytest.raises(UserError) as refused:
            read()
        assert refused.value.subject.endswith("piece-00000003.jsonl")


@pytest.mark.parametrize("change", ["another's", "cut", "empty", "a byte"])
def test_a_piece_that_does_not_continue_the_others_is_refused_by_name(change: str) -> None:
    place, _ = _journal(5)
    other, _ = _journal(5)
    name = f"{STUDY_FILE}/piece-00000003.jsonl"
    text = place.read_text(name)
    changed = {
        "another's": other.read_text(name),
        "cut": text.splitlines(keepends=True)[0],
        "empty": "",
        "a byte": text.replace("value", "valve", 1),
    }[change]
    place.put_text(name, changed)
    with pytest.raises(
        UserError, match=r"piece-0000000[34]\.jsonl: got .a damaged part of the study's journal: it was changed"
    ):
        read_pieces(place, STUDY_FILE)


def test_a_writer_that_wakes_after_its_successor_began_learns_it() -> None:
    place, first = _journal(2)
    second = Writer(place, "1")
    with pytest.raises(StoreError) as refused:
        first.journal.append(["{}"])
    assert refused.value.subject.endswith("piece-00000004.jsonl")
    assert _bodies(read_pieces(place, STUDY_FILE).lines) == second.view


def _checked(place: ObjectPrefix, path: Path) -> list[str]:
    spec = Sweep(name="s", workload="category_pairs", space={"init_sigma": 0.1}, trials=1)
    directory = SweepDirectory.create(path / "s", spec, {}).but(place=place)
    [check] = check_journal(directory, finished=True)
    return [str(problem) for problem in check.problems]


def test_a_piece_of_a_writer_that_had_lost_the_sweep_does_not_count_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, writer = _journal(2)
    stray = place.read_text(f"{STUDY_FILE}/piece-00000003.jsonl").replace("1", "7")
    monkeypatch.setattr(study_storage, "_MOST_PIECES", 3)
    for number in range(3):
        writer.save(number)
    assert _checked(place, tmp_path / "before") == []
    place.put_text(f"{STUDY_FILE}/piece-00000003.jsonl", stray)
    assert _bodies(read_pieces(place, STUDY_FILE).lines) == writer.view
    assert ["piece-00000003.jsonl" in problem for problem in _checked(place, tmp_path / "after")] == [True]


@pytest.fixture
def prefix(s3: str) -> ObjectPrefix:
    """An empty place in a real store."""
    return new_prefix()


def _directory(path: PlaceName, sampler: Sampler = "random") -> SweepDirectory:
    space: dict[str, Dimension] = {"init_sigma": Float(low=1e-4, high=1.0, log=True), "n_steps": 10}
    spec = Sweep(name="s", workload="category_pairs", space=space, sampler=sampler, trials=16, seed=5)
    return SweepDirectory.create(path, spec, {})


def _run(study: Study, n_trials: int) -> list[Configuration]:
    asked = []
    for _ in range(n_trials):
        asked.append(study.ask())
        study.tell(asked[-1].trial, float(asked[-1].values["init_sigma"]))  # type: ignore[arg-type]
        study.save()
    return asked


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_study_goes_on_as_if_it_had_not_been_interrupted(
    sampler: Sampler, prefix: ObjectPrefix, tmp_path: Path
) -> None:
    undisturbed = _run(Study(_directory(tmp_path / "s", sampler)), 16)
    directory = _directory(prefix, sampler)
    first = _run(Study(directory), 11)
    assert first + _run(Study(directory), 5) == undisturbed


def test_a_joining_that_was_killed_before_it_removed_its_parts_counts_each_entry_once(
    prefix: ObjectPrefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = _directory(prefix)
    study = Study(directory)
    _run(study, 6)
    monkeypatch.setattr(study_storage, "_MOST_PIECES", 5)
    monkeypatch.setattr(ObjectPrefix, "remove", lambda *_: None)
    _run(study, 1)
    resumed = Study(directory)
    assert resumed.asked() == [Asked(trial, is_told=True) for trial in range(7)]
