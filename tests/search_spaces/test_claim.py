"""Claims: what their files and statements may say, and the sweep that they are."""

from pathlib import Path

import pytest

from attnsweep.search_spaces.claim import Claim, load_claim
from attnsweep.search_spaces.statement import Quantity, read_statement
from attnsweep.workloads.errors import SpecError, UserError
from tests.refusals import refused

STATES = "rate(solved, small) < rate(solved, large)"


def claim(**changes: object) -> Claim:
    fields: dict[str, object] = {
        "name": "c",
        "claim": "A small start is solved less often.",
        "source": "a test",
        "workload": "category_pairs",
        "groups": {"small": {"init_sigma": 0.001}, "large": {"init_sigma": 1.0}},
        "states": (STATES,),
        "budget": 64,
    }
    return Claim(**(fields | changes))  # type: ignore[arg-type]


def test_a_statement_is_an_inequality_whichever_way_it_is_written() -> None:
    small, large = (Quantity(kind="rate", what="outcome", name="solved", group=group) for group in ("small", "large"))
    for text in (STATES, "rate(solved,large)>rate( solved , small )"):
        found = read_statement(text)
        assert (found.lower, found.upper, found.lower_factor, found.upper_factor) == (small, large, 1, 1)
        assert found.bound is None
    twice = read_statement("3 * rate(solved, small) < 1.5 * rate(solved, large)")
    assert (twice.lower_factor, twice.upper_factor) == (3, 1.5)
    assert read_statement("2 * rate(solved, large) > 0.5").bound == 0.25
    median = read_statement("200 > median(event fits, large)")
    assert (median.kind, median.bound, median.upper) == ("median", 200, None)
    by = read_statement("rate(event fits by 50, large) > .5").quantities[0]
    assert (by.what, by.by, by.before) == ("event", 50, None)
    assert read_statement("rate(event fits before adds, large) > .5").quantities[0].before == "adds"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate(solved, small)", "A < B or A > B"),
        ("rate(solved, small) < median(solved, large)", "A < B or A > B"),
        ("rate(solved, small) < 1.2", "a rate compared with a number between 0 and 1"),
        ("rate(solved, small) < rate(stuck, small)", "two different groups"),
        ("rate(solved, smal) < 0.5", "did you mean small?"),
        ("rate(solved, small) < 0.5", "groups.large"),
    ],
)
def test_a_statement_that_trainings_cannot_decide_is_refused(text: str, said: str) -> None:
    with pytest.raises(SpecError) as told:
        claim(states=(text,))
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"groups": {"small": {"init_sigma": 0.1}, "large": {"n_steps": 9}}}, "the parameters of the other groups"),
        ({"groups": {"small": {"init_sigma": 0.1}, "large": {"init_sigma": 0.1}}}, "two with the same values"),
        ({"budget": 31}, "at least batch=16 for each of 2 groups"),
        ({"confidence": 1.0}, "confidence"),
        ({"bugdet": 31}, "did you mean budget?"),
    ],
)
def test_a_claim_that_cannot_be_trained_as_written_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError) as told:
        claim(**changes)
    assert said in str(told.value)


def test_a_claim_is_a_sweep_with_a_trial_for_each_group() -> None:
    one = claim(fixed={"n_steps": 8})
    assert (one.sweep().trials, one.sweep().replicates, one.sweep().fixed()) == (2, 16, {"n_steps": 8})
    groups = {"small": {"init_sigma": 0.1, "n_steps": 8}, "large": {"n_steps": 9, "init_sigma": 1}}
    assert claim(groups=groups).sweep().space["init_sigma, n_steps"].rows == ((0.1, 8), (1, 9))  # type: ignore[union-attr]
    alone = claim(groups={"all": {}}, states=("rate(solved, all) > 0.5",))
    assert (alone.sweep().trials, alone.sweep().space) == (1, {})


def test_a_file_is_a_claim_named_after_it(tmp_path: Path) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(
        "claim: c\nsource: s\nworkload: mine.py:Mine\ngroups: {a: {}}\nstates: ['rate(stuck, a) > 0.5']\nbudget: 16\n"
    )
    found = load_claim(path)
    assert (found.name, found.workload) == ("first", f"{tmp_path.resolve() / 'mine.py'}:Mine")
    # It is the same claim with another budget, other words, and from another folder; not with another seed.
    other = found.but(budget=32, claim="d", workload="/elsewhere/mine.py:Mine")
    assert found.says_the_same(other)
    assert not found.says_the_same(other.but(seed=1))
    path.write_text("claim: 2026-01-01\n")
    with refused("claim", UserError):
        load_claim(path)
    path.write_text("- 1\n")
    with pytest.raises(UserError):
        load_claim(path)
