"""The numbers with an interval in the text of a page, and whether a claim states one of them.

A number with an interval is printed as `0.49 [0.36, 0.62]`, `12 of 16 [0.51, 0.90]` or `49% [34%, 64%]`. Line breaks do
not count.
"""

import re
from collections.abc import Iterator

from attnsweep.reproduction.claims.claim import Claim

_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?%?"
_INTERVAL = re.compile(rf"\[({_NUMBER}), ({_NUMBER})\]")
_COUNT = re.compile(r"([\d,]+) of ([\d,]+)\W*$")


def flat(text: str) -> str:
    """A page with single spaces for all white space."""
    return " ".join(text.split())


def interval_ends(page: str) -> Iterator[int]:
    """Where the intervals of a flat page end."""
    yield from (match.end() for match in _INTERVAL.finditer(page))


def places(sentence: str, page: str) -> list[int]:
    """Where a sentence begins on a flat page; occurrences may overlap."""
    return [match.start() for match in re.finditer(f"(?={re.escape(sentence)})", page)]


def counted_numbers(sentence: str, page: str) -> list[str]:
    """What a flat page prints for each `{}` of a sentence, if the sentence occurs once; else nothing."""
    pattern = f"({_NUMBER})".join(map(re.escape, sentence.split("{}")))
    found = list(re.finditer(pattern, page))
    return list(found[0].groups()) if len(found) == 1 else []


def flaws(claim: Claim, page: str) -> Iterator[str]:
    """What is wrong with the sentence of a claim on its flat page."""
    n_times = len(places(claim.sentence, page))
    if n_times != 1:
        yield f"it occurs {n_times} times, and must occur once: {claim.sentence!r}"
    matches = list(_INTERVAL.finditer(claim.sentence))
    if not matches or matches[-1].end() != len(claim.sentence):
        yield f"it does not end with its interval: {claim.sentence!r}"
        return
    before = claim.sentence[: matches[-1].start()]
    for number, printed in zip((claim.low, claim.high), matches[-1].groups(), strict=True):
        if not prints(number, printed):
            yield f"the page says {printed} where the claim has {number}"
    count = _COUNT.search(before)
    printed = re.findall(_NUMBER, before)[-1]
    if count is not None:
        given = tuple(int(each.replace(",", "")) for each in count.groups())
        if given != (claim.k, claim.n):
            yield f"the page says {count[0]} where the claim has {claim.k} of {claim.n}"
    elif not (prints(claim.value, printed) or (claim.k is not None and printed == str(claim.k))):
        yield f"the page says {printed} where the claim has {claim.value}"


def prints(number: float, printed: str) -> bool:
    """Whether a text is this number, rounded to the digits that the text has."""
    digits = printed.replace(",", "").rstrip("%")
    scale = 0.01 if printed.endswith("%") else 1.0
    mantissa, _, exponent = digits.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    unit = 10.0**-decimals * scale
    # Half a unit, and a little for numbers that are stored rounded themselves.
    return abs(float(digits) * scale - number) <= 0.5001 * unit
