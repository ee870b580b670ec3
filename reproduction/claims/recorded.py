"""Measurements of claims on another seed, as docs/claims/again/*.toml record them, and what they say."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnsweep.reproduction.claims.agreement import Measured, holm, p_value
from attnsweep.reproduction.claims.claim import Stated


@dataclass(frozen=True, slots=True)
class Tested:
    """A claim, its value on another seed, and the verdict.

    Attributes:
        stated: The claim.
        again: The other value.
        p: Probability of values that differ as much, if both measure one number.
        agrees: Whether Holm's test over the claims of the run lets it stand.
    """

    stated: Stated
    again: Measured
    p: float
    agrees: bool


def verdicts(pairs: Sequence[tuple[Stated, Measured]]) -> list[Tested]:
    """The verdicts on the claims of one run."""
    p_values = [p_value(stated.claim, again) for stated, again in pairs]
    rejected = holm(p_values)
    return [Tested(*pair, p, not no) for pair, p, no in zip(pairs, p_values, rejected, strict=True)]


def recorded(claims: Sequence[Stated], folder: Path) -> dict[str, list[Tested]]:
    """The verdicts by run: a file of the folder, or the twins of a group, which are the page's own second seed."""
    by_name = {each.name: each for each in claims}
    found = {}
    for path in sorted(folder.glob("*.toml")):
        rows = tomllib.loads(path.read_text())["again"]
        pairs = [(by_name[row.pop("claim")], Measured(**row)) for row in rows]
        found[path.stem] = verdicts(pairs)
    for group in dict.fromkeys(each.group.name for each in claims):
        pairs = list(_twins(group, by_name))
        if pairs:
            found[f"{group}, twice on its page"] = verdicts(pairs)
    return found


def write_record(path: Path, pairs: Sequence[tuple[Stated, Measured]]) -> None:
    """Writes a run as TOML."""
    lines = []
    for stated, again in pairs:
        lines += ["[[again]]", f"claim = {_quoted(stated.name)}"]
        lines += [f"{name} = {getattr(again, name):.6g}" for name in ("value", "low", "high")]
        lines += [f"{name} = {number}" for name in ("n", "k") if (number := getattr(again, name)) is not None]
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def table(runs: Mapping[str, Sequence[Tested]]) -> str:
    """The runs as a table of Markdown: claims tested, agreed and failed."""
    lines = ["| run | tested | agreed | failed |", "|---|---|---|---|"]
    for name, of_run in runs.items():
        agreed = sum(each.agrees for each in of_run)
        lines.append(f"| {name} | {len(of_run)} | {agreed} | {len(of_run) - agreed} |")
    everything = [each for of_run in runs.values() for each in of_run]
    agreed = sum(each.agrees for each in everything)
    lines.append(f"| all | {len(everything)} | {agreed} | {len(everything) - agreed} |")
    return "\n".join(lines)


def _twins(group: str, by_name: Mapping[str, Stated]) -> list[tuple[Stated, Measured]]:
    pairs = []
    for each in by_name.values():
        if each.group.name == group and each.claim.twin is not None:
            twin = by_name[f"{group}: {each.claim.twin}"].claim
            pairs.append((each, Measured(value=twin.value, low=twin.low, high=twin.high, n=twin.n, k=twin.k)))
    return pairs


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
