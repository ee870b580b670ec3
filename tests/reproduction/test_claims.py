"""The numbers of the documents: each with an interval is a claim, and what was measured again is told as it was."""

import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from attnsweep.orchestrator.analysis.rates.intervals import wilson
from attnsweep.reproduction.claims.__main__ import (
    RECORD,
    STATED,
    Decided,
    announcement,
    claims_of,
    main,
    markdown,
    measured_again,
    print_table,
    read_record,
    write_record,
)
from attnsweep.reproduction.claims.claim import (
    Claim,
    Group,
    Measured,
    Stated,
    effective_n,
    holm,
    load_claims,
    load_counted,
    p_value,
    recorded,
    table,
    verdicts,
    write_again,
)
from attnsweep.reproduction.claims.sources import SOURCES, Run, numbers_of
from attnsweep.reproduction.comparison import ComparedValue, Comparison
from attnsweep.reproduction.studies import positions
from attnsweep.reproduction.trained import one_thread
from attnsweep.search_spaces.loading import assignments, load_sweep
from attnsweep.workloads.errors import UserError
from tests.across.documents import DOCUMENTS, ROOT
from tests.orchestrator.running.test_verifying import claim_file
from tests.reproduction.pages import counted_numbers, flat, flaws, interval_ends, places, prints

FOLDER = ROOT / "docs" / "claims"
PAGES = {name: flat(text) for name, text in DOCUMENTS.items()}
CLAIMS = load_claims(FOLDER)
QUOTES = "claims.md"
"""The page that shows what a row looks like."""
BY_NAME = {each.name: each for each in CLAIMS}


def of_pages() -> Mapping[str, list[Claim]]:
    found: dict[str, list[Claim]] = defaultdict(list)
    for each in CLAIMS:
        found[each.page].append(each.claim)
    return found


def test_a_claim_is_what_its_page_says() -> None:
    found = {each.name: list(flaws(each.claim, PAGES[each.page])) for each in CLAIMS}
    assert {name: of_claim for name, of_claim in found.items() if of_claim} == {}


def test_every_number_with_an_interval_is_a_claim() -> None:
    claims, missing = of_pages(), []
    for page, text in PAGES.items():
        if page == QUOTES:
            continue
        claimed = {start + len(each.sentence) for each in claims[page] for start in places(each.sentence, text)}
        missing += [(page, text[max(0, end - 80) : end]) for end in interval_ends(text) if end not in claimed]
    assert missing == [], "each needs a row in docs/claims/<page>.toml: docs/claims.md"


def test_the_interval_of_a_share_is_wilsons() -> None:
    for each in CLAIMS:
        claim = each.claim
        if claim.k is not None and claim.n is not None:
            interval = wilson(claim.k / claim.n, claim.n)
            expected = pytest.approx((claim.k / claim.n, *interval), rel=1e-4, abs=1e-6)
            assert (claim.value, claim.low, claim.high) == expected, each.name


def test_what_measures_a_claim_exists() -> None:
    for each in CLAIMS:
        assert each.group.source in ("", *SOURCES)
        if each.claim.twin is not None:
            assert f"{each.group.name}: {each.claim.twin}" in BY_NAME
        if each.claim.trained is not None:
            load_sweep(each.claim.trained.sweep).fix(assignments(each.claim.trained.fixed))


def test_the_page_of_the_claims_says_what_was_recorded() -> None:
    runs = recorded(CLAIMS, FOLDER / "again")
    assert table(runs) in DOCUMENTS["claims.md"]
    for of_run in runs.values():
        for each in of_run:
            if not each.agrees:
                assert any(prints_both(each.again, text) for text in PAGES.values()), f"{each.stated.name} failed"


def prints_both(again: Measured, text: str) -> bool:
    """Whether a page has the interval of a second measurement as well."""
    for end in interval_ends(text):
        low, high = text[text.rindex("[", 0, end) + 1 : end - 1].split(", ")
        if prints(again.low, low) and prints(again.high, high):
            return True
    return False


def test_a_sentence_that_drifts_from_its_claim_is_noticed() -> None:
    page = flat("The share is 0.49\n[0.36, 0.62] of all, 12 of 16 [0.51, 0.90], 49% [34%, 64%].")
    claim = a_claim(sentence="The share is 0.49 [0.36, 0.62]", value=0.487, low=0.36, high=0.622)
    assert list(flaws(claim, page)) == []
    assert "0.49" in next(flaws(claim.model_copy(update={"value": 0.496}), page))
    assert "0.62" in next(flaws(claim.model_copy(update={"high": 0.63}), page))
    assert "0 times" in next(flaws(claim.model_copy(update={"sentence": "share of 0.49 [0.36, 0.62]"}), page))
    counted = a_claim(sentence="12 of 16 [0.51, 0.90]", value=0.75, low=0.505, high=0.898, kind="share", k=12, n=16)
    assert list(flaws(counted, page)) == []
    assert "12 of 16" in next(flaws(counted.model_copy(update={"k": 11}), page))
    percent = a_claim(sentence="49% [34%, 64%]", value=0.49, low=0.34, high=0.64)
    assert list(flaws(percent, page)) == []
    assert len(list(interval_ends(page))) == 3


def test_counted_numbers_are_found_where_their_sentence_stands() -> None:
    page = flat("Without dropout 12 of\nthe 1,016 overfit, with it\n0.5%. By 3 of 4 (5 of 6).")
    assert counted_numbers("dropout {} of the {} overfit, with it {}.", page) == ["12", "1,016", "0.5%"]
    assert counted_numbers("{} of {}", page) == []  # It occurs twice.
    assert counted_numbers("dropout {} of {} overfit", page) == []


def test_a_broken_row_is_refused(tmp_path: Path) -> None:
    group = '[[groups]]\nname = "g"\ncommand = "c"\nmeasured = "m"\nversions = "v"\n'
    row = '{{row="r", sentence="s", value={}, low=0, high=1, n=1, kind="estimate", seeds="0"}}'
    (tmp_path / "a.toml").write_text(f'page = "a.md"\n{group}claims = [{row.format(2)}]')
    with pytest.raises(UserError, match="inside of its interval"):
        load_claims(tmp_path)
    (tmp_path / "a.toml").write_text(f'page = "a.md"\n{group}claims = [{row.format(0)}, {row.format(1)}]')
    with pytest.raises(UserError, match="second claim with the name g: r"):
        load_claims(tmp_path)
    (tmp_path / "a.toml").write_text('page = "a.md"\ngroups = []\n[[counted]]\nsentence = "{}"\nledgers = ["l"]')
    with pytest.raises(UserError, match="query"):
        load_counted(tmp_path)


def a_claim(**values: object) -> Claim:
    stated = {"row": "r", "sentence": "", "value": 0.5, "low": 0.4, "high": 0.6, "n": 100, "kind": "rate", "seeds": "0"}
    return Claim.model_validate(stated | values)


def test_two_samples_are_told_apart_where_they_differ() -> None:
    share = a_claim(kind="share", n=20, k=19, value=0.95, low=0.76, high=0.99)
    assert p_value(share, Measured(value=0.4, low=0.17, high=0.69, n=10, k=4)) == pytest.approx(0.00212, abs=1e-5)
    mean = a_claim(kind="estimate", value=1.0, low=0.804, high=1.196)
    assert p_value(mean, Measured(value=1.28, low=1.084, high=1.476, n=9)) == pytest.approx(0.0477, abs=1e-3)
    late = a_claim(kind="estimate", scale="log", value=0.9, low=0.4, high=1.0)
    assert p_value(late, Measured(value=0.3, low=0.27, high=0.7)) == pytest.approx(0.0656, abs=1e-3)
    assert p_value(late, Measured(value=2.7, low=1.2, high=3.0)) < 0.02
    never = a_claim(value=0.0, low=0.0, high=wilson(0, 40)[1])
    assert p_value(never, Measured(value=0.0, low=0.0, high=0.2, n=16)) == 1.0
    assert p_value(never, Measured(value=0.5, low=0.35, high=0.65, n=40)) < 1e-5


@pytest.mark.parametrize(("share", "n"), [(0.0, 60.0), (0.31, 25.0), (1.0, 8.0)])
def test_the_effective_number_is_read_from_wilsons_interval(share: float, n: float) -> None:
    assert effective_n(share, *wilson(share, n)) == pytest.approx(n, rel=1e-6)


def test_holm_rejects_in_steps() -> None:
    assert holm([0.02, 0.01, 0.3]) == [True, True, False]
    assert holm([0.03, 0.01, 0.3]) == [False, True, False]
    assert holm([0.02, 0.02, 0.03]) == [False] * 3


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    chosen = [each for each in CLAIMS if each.claim.kind == "share"][:2]
    pairs = [(each, Measured(value=0.5, low=0.25, high=0.75, n=8, k=4)) for each in chosen]
    write_again(tmp_path / "again" / "run.toml", pairs)
    assert recorded(CLAIMS, tmp_path / "again")["run"] == verdicts(pairs)


def test_numbers_are_read_from_rows_and_tables() -> None:
    rates = [["where", "trainings", "solved"], ["init_sigma = 0.1", "24", "0.250 [0.162, 0.365]"]]
    rows = [ComparedValue(name="a", published=None, ours=1.0, low=0.5, high=2.0)]
    found = numbers_of(Comparison(title="", source="", rows=rows, tables=[("Rates", rates)]))
    assert found == {"a": (1.0, 0.5, 2.0), "init_sigma = 0.1: solved": (0.25, 0.162, 0.365)}


def test_a_name_without_a_source_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["claims", "runaways-0.3"])
    assert main() == 2
    assert "did you mean runaways-0.03" in capsys.readouterr().err


def test_a_claim_on_real_text_asks_for_its_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shipped sweep would train on the grammar."""
    monkeypatch.chdir(ROOT)
    for group in ("positional-text", "chiang-table1-text"):
        monkeypatch.setattr("sys.argv", ["claims", group])
        assert main() == 2
        assert "--sweep: got None, expected a finished sweep with --seed 1 on the corpus" in capsys.readouterr().err


@pytest.mark.scale
@pytest.mark.usefixtures("no_mlflow")
def test_claims_with_sweeps_of_their_own_do_not_run_the_sweep_of_their_group(tmp_path: Path) -> None:
    """The group's source does not exist: asking it would be an error."""
    counts = "select count(*) as n, count(*) as k from trainings"
    own = {"sweep": "quickstart", "fixed": ["n_steps=5"], "trials": 1, "replicates": 2, "counts": counts}
    fields = {"name": "g", "command": "c", "source": "none", "measured": "m", "versions": "v", "claims": []}
    stated = Stated(page="a.md", group=Group.model_validate(fields), claim=a_claim(trained=own))
    [(_, again)] = measured_again([stated], Run(1, tmp_path, Console(quiet=True)))
    assert (again.value, again.n) == (1.0, 100)


CHEAP = [
    (sigma, rate) for rate in sorted(positions.LEARNING_RATES, reverse=True) for sigma in reversed(positions.SIGMAS)
]


@pytest.mark.slow
@pytest.mark.sample(*(f"{sigma}-{rate}" for sigma, rate in CHEAP[:3]))
@pytest.mark.parametrize(("sigma", "rate"), CHEAP)
def test_the_cheapest_claims_hold_at_their_own_seeds(sigma: float, rate: float) -> None:
    """To within two trainings, which another machine's rounding may decide otherwise."""
    with one_thread():
        row = positions.runaways(positions.Size(), sigma, rate)
    claim = BY_NAME[f"runaways-{rate:g}: {row.name}"].claim
    assert claim.n is not None
    assert row.ours == pytest.approx(claim.value, abs=2.01 / claim.n)


@pytest.mark.slow
def test_the_valley_is_left_at_its_own_seeds() -> None:
    claim = BY_NAME["valley:   of these, solved after the reset vP := alpha P"].claim
    with one_thread():
        [row] = [row for row in positions.valley_rows(positions.Size()) if row.name == claim.row]
    assert claim.n is not None
    assert row.ours == pytest.approx(claim.value, abs=2.01 / claim.n)


FOUND = [
    Decided("a", 36, "supported", 32, "291 for", 11.25),
    Decided("b", 36, "refuted", 1_024, "23 against", 64.0),
    Decided("c", 36, "undecided", 64, "2.1 for", 5.0),
]


@pytest.mark.slow
@pytest.mark.usefixtures("no_mlflow")
def test_all_claims_of_the_folder_are_decided_and_a_refuted_one_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them cannot be true: few trainings are solved."""
    monkeypatch.chdir(tmp_path)
    STATED.mkdir(parents=True)
    shutil.move(claim_file(tmp_path, 0.4), STATED / "few.yaml")
    monkeypatch.setattr("sys.argv", ["claims", "--seed", "3", "--record"])
    assert main() == 0
    said = capsys.readouterr()
    assert "1 claims, at most 24 trainings" in said.err
    assert "1 supported, 0 refuted, 0 undecided" in said.out
    (found,) = read_record(STATED / RECORD)
    assert (found.name, found.seed, found.verdict) == ("few", 3, "supported")
    assert found.cpu_seconds > 0
    text = (STATED / "few.yaml").read_text().replace(" < ", " > ")
    (STATED / "many.yaml").write_text(text.replace("few", "many").replace("large) > 0.4", "large) < 0.4"))
    monkeypatch.setattr("sys.argv", ["claims", "--seed", "3"])
    assert main() == 1
    said = capsys.readouterr()
    assert "2 claims, at most 48 trainings; 1 of them took 0 CPU minutes" in said.err
    assert "1 supported, 1 refuted, 0 undecided" in said.out


def test_a_budget_caps_each_claim_and_its_file_keeps_its_seed(tmp_path: Path) -> None:
    claim_file(tmp_path, 0.4, budget=100)
    assert [(each.budget, each.seed) for each in claims_of(tmp_path, None, 24)] == [(24, 7)]
    assert [(each.budget, each.seed) for each in claims_of(tmp_path, 1, 1_000)] == [(100, 1)]
    # Less than a batch of each group would be no budget.
    assert claims_of(tmp_path, None, 2)[0].budget == 8


def test_a_record_of_verdicts_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_record(tmp_path / RECORD, FOUND)
    assert read_record(tmp_path / RECORD) == FOUND
    assert read_record(tmp_path / "none.toml") == []
    claim = claims_of(ROOT / STATED, None, None)[:1]
    assert announcement(claim, [Decided(claim[0].name, 36, "supported", 1, "", 120.0)]).endswith(
        "1 of them took 2 CPU minutes when they were recorded"
    )


def test_the_table_has_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(FOUND, Console())
    said = capsys.readouterr().out
    assert [line.split() for line in said.splitlines()[1:3]] == [
        ["a", "supported", "32", "291", "for", "11"],
        ["b", "refuted", "1,024", "23", "against", "64"],
    ]
    assert "1 supported, 1 refuted, 1 undecided" in said


def test_the_page_has_the_verdict_of_every_claim_that_ships() -> None:
    claims, found = claims_of(ROOT / STATED, None, None), read_record(ROOT / STATED / RECORD)
    assert [each.name for each in found] == [claim.name for claim in claims]
    assert {(claim.name, claim.seed) for claim in claims} == {(each.name, each.seed) for each in found}
    assert markdown(claims, found) in DOCUMENTS["verify.md"]
