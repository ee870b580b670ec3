"""The page about a stuck training: which terms of its gradients ("words") vanish and why, how it could leave, and when.

A part is a component of the target, such as its mean. A pull is a word that contains the target, a brake is a word that
contains the prediction. A part is starved if its words are small.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from attnsweep.orchestrator.inspection.why import Why, why
from attnsweep.orchestrator.report.retrained import WhyPage, shown_map
from attnsweep.orchestrator.report.sweep_report import SweepReport
from attnsweep.workloads.words.terms import AttentionMap, Balance, GradientWords

_MOST_MAPS = 4
_LEAST_SHARE = 0.01
"""Weights whose gradient terms ("words") are below this share of the largest term, in each part of the target, get one
line together."""
_MOST_NAMES = 8


def pages_of(report: SweepReport) -> list[WhyPage]:
    """Returns a page about each stuck training that the report shows. Trainings whose weights were not kept are trained
    again.

    Raises:
        UserError: If the sweep's code is not trusted, or fails.
    """
    return [page_of(why(report.directory, row.name, report.place)) for row in report.stuck_rows]


def page_of(analysis: Why) -> WhyPage:
    """Lays out the page about one stuck training: facts, a table of the terms of its gradient, notes, attention maps,
    and the loss curve."""
    words = analysis.words
    other = [f"{analysis.difference}; this page is about that ending"] if analysis.difference else []
    facts = [("another ending", text) for text in other]
    facts.append((words.state(), _meaning(words)))
    facts += [("way out", way) for way in _way_out(analysis)]
    facts += [("curvature", text) for text in _curvature(analysis)]
    facts += [("forecast", _forecast(analysis)), ("certificate", _certificate(analysis))]
    columns, rows, remark = _product_table(words) if words.is_product else _places_table(words)
    return WhyPage(
        name=analysis.name,
        headline=_headline(analysis),
        facts=tuple(facts),
        columns=columns,
        rows=rows,
        notes=tuple(_notes(analysis, remark)),
        maps=tuple(
            shown_map(_map_title(attention, words.zero_levels), attention.weights_QT.tolist())
            for attention in words.maps[:_MOST_MAPS]
        ),
        curve=tuple((step, value) for step, value in analysis.curve if value is not None),
        replay=analysis.replay_command,
    )


def _headline(analysis: Why) -> str:
    row = analysis.row
    detail = f" ({row['outcome_detail']})" if row["outcome_detail"] else ""
    loss = "" if row["eval_loss"] is None else f", loss {row['eval_loss']:.4g} after {row['n_steps']} steps"
    return f"{analysis.name}  {row['outcome']}{detail}{loss}"


def _meaning(words: GradientWords) -> str:
    state, starved = words.state(), words.starved_parts()
    if state == "undivided":
        return _undivided(words)
    if len(starved) == len(words.zero_levels):
        if words.is_product:
            return "all words are small, so the weights hardly move: a zero of the gradient, or close to one"
        return "the words do little work in any part: the answer is near that of a zero, or not yet far from it"
    if state == "moving":
        part = max((fed for fed in words.zero_levels if fed not in starved), key=words.left)
        balances = (balance for balance in words.balances() if balance.part == part)
        worst = max(balances, key=lambda balance: balance.left * balance.size)
        return f"the words of {worst.weight} in {part} do not cancel: {worst.left:.0%} is left"
    if starved:
        small = "no word is large" if words.is_product else "the words do little work"
        return f"pull and brake cancel where the words are large, and {small} in {', '.join(starved)}"
    if state == "balanced":
        return "pull and brake cancel in all parts, as at a solution"
    norms = "grow" if words.growth() > 0 else "shrink"
    return (
        f"large words cancel, the pulls of I - P and P oppose each other, and a step downhill makes the norms {norms}"
    )


def _undivided(words: GradientWords) -> str:
    sizes = {name: float(words.gradient(name).norm() * value.norm()) for name, value in words.weights.items()}
    top = max(sizes, key=lambda name: sizes[name])
    starved = [name for name, size in sizes.items() if size < _LEAST_SHARE * sizes[top]]
    more = f"; below 1% of that: {_listed(starved)}" if starved else ""
    largest = f"the largest gradient is with respect to {top}{more}"
    return f"no single output is judged, so pull and brake cannot be distinguished; {largest}"


def _way_out(analysis: Why) -> Iterator[str]:
    """Yields a text for each part of the target (such as the target's mean) that the training hardly learns: through
    which weight the part could still be learned, and how fast."""
    words = analysis.words
    starved = words.starved_parts()
    for part in starved:
        balances = [balance for balance in words.balances() if balance.part == part and balance.size > 0]
        if not balances:
            yield f"none through {part}: all its words are 0"
            continue
        fastest = min(balances, key=lambda balance: _steps_per_e(analysis, balance))
        measure = "size" if words.is_product else "work"
        sizes = (balance.size for balance in balances)
        amount = min(sizes) if words.is_product else max(balance.work for balance in balances)
        goal = "4 or more" if words.is_product else "4"
        yield (
            f"{part}, where the words have {measure} {amount:.1g} ({goal} at a solution); "
            f"the fastest is {fastest.weight}, {_speed(analysis, fastest)}"
        )


def _curvature(analysis: Why) -> Iterator[str]:
    saddle = analysis.saddle
    if saddle is None:
        if analysis.words.starved_parts():
            yield "not known: the loss has no second derivatives"
        return
    if not saddle.is_negative:
        yield "no direction was found in which the loss curves down"
        return
    weights = [f"{name} {share:.0%}" for name, share in _largest(saddle.weights) if share >= _LEAST_SHARE]
    parts = [f"{part} {value:+.2g}" for part, value in _largest(saddle.parts)]
    steps = _rounded(saddle.steps(analysis.training.parameters.learning_rate))
    yield (
        f"the loss curves down along {_listed(weights)}; second derivative {saddle.curvature:.2g} "
        f"({_listed(parts)}); a deviation grows e-fold in {steps} steps{_plain(analysis)}"
    )


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -abs(item[1]))


def _steps_per_e(analysis: Why, balance: Balance) -> float:
    """Returns after how many steps plain gradient descent would have changed a weight by as much as the weight's own
    norm, if the gradient had only the terms for one part of the target (such as its mean).

    `balance` names the weight and the part of the target.
    """
    terms = [term.value for term in analysis.words.terms if (term.weight, term.part) == (balance.weight, balance.part)]
    speed = analysis.training.parameters.learning_rate * float(sum(terms[1:], terms[0]).norm())
    return float(analysis.words.weights[balance.weight].norm()) / speed if speed > 0 else math.inf


def _speed(analysis: Why, balance: Balance) -> str:
    steps = _steps_per_e(analysis, balance)
    if not math.isfinite(steps):
        return "whose words cancel"
    return f"which they change by its own norm in {_rounded(steps)} steps{_plain(analysis)}"


def _plain(analysis: Why) -> str:
    return "" if analysis.training.parameters.optimizer == "sgd" else " of plain gradient descent at the same rate"


def _rounded(steps: float) -> str:
    return f"{float(f'{steps:.2g}'):,.0f}" if 10 <= steps < 1e6 else f"{steps:.2g}"


def _forecast(analysis: Why) -> str:
    predicted, n_steps = analysis.predicted_escape, analysis.row["n_steps"]
    if predicted is None:
        return (
            "no law for this start (a law needs plain gradient descent, a small init_sigma, and a loss that is the "
            "same at each step)"
        )
    if not math.isfinite(predicted):
        return "by the law of its start it never leaves"
    verdict = "so it has left its start" if predicted < n_steps else "so it is slow, not stuck"
    if predicted < n_steps and analysis.words.state() == "starved":
        verdict = "but it is starved: rounding may hold it"
    return f"by the law of its start it leaves at step {predicted:.0f}; it trained {n_steps} steps, {verdict}"


def _certificate(analysis: Why) -> str:
    row = analysis.row
    match row["certified"]:
        case None:
            return "the label was not tested"
        case True:
            return f"{row['certificate']} confirms {row['outcome']}"
    return f"{row['certificate']} does not confirm {row['outcome']}"


def _product_table(words: GradientWords) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]:
    rows = []
    for balance in words.balances():
        pull, brake = (_text(words, balance, kind) for kind in ("pull", "brake"))
        sizes = [f"{size:.1e}" for size in (balance.pull, balance.brake, balance.left)]
        rows.append((balance.weight, balance.part, pull, sizes[0], brake, *sizes[1:]))
    return ("by", "part", "pull", "size", "brake", "size", "left"), tuple(rows), ""


def _text(words: GradientWords, balance: Balance, kind: str) -> str:
    own_terms = (
        term for term in words.terms if (term.weight, term.part, term.kind) == (balance.weight, balance.part, kind)
    )
    return " + ".join(term.text for term in own_terms)


def _places_table(words: GradientWords) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...], str]:
    """Makes a table of the sizes of the terms that add up to the gradient of each weight. A row shows those terms of
    one weight that have the same formula (a "word").

    For each part of the target a row shows the pull (terms with the target), the brake (terms with the prediction), and
    the share that is left when the two are added, because they partly cancel.
    """
    places = dict.fromkeys((term.weight, term.text) for term in words.terms)
    parts = list(words.zero_levels) or [""]
    sized = {place: [_sizes(words, place, part) for part in parts] for place in places}
    tops = [max(max(cells[index][:2]) for cells in sized.values()) for index in range(len(parts))]
    rows, small = [], []
    for (weight, text), cells in sized.items():
        if all(max(pull, brake) <= _LEAST_SHARE * top for (pull, brake, _), top in zip(cells, tops, strict=True)):
            small.append(weight)
            continue
        numbers = [f"{pull:.1e} {brake:.1e} {left:4.0%}" for pull, brake, left in cells]
        rows.append((weight, text, *(numbers if words.zero_levels else [f"{cells[0][0]:.1e}"])))
    columns = ("by", "word", *(f"{part}: pull, brake, left" if part else "size" for part in parts))
    remark = f"below 1% of the largest word in each part: {_listed(dict.fromkeys(small))}" if small else ""
    return columns, tuple(rows), remark


def _sizes(words: GradientWords, place: tuple[str, str], part: str) -> tuple[float, float, float]:
    """Measures how far the terms with one formula cancel in the gradient of one weight: the terms that contain the
    target (pull) against those that contain the prediction (brake). Only terms about one part of the target, such as
    its mean, are used.

    Returns the sizes of pull and brake, and the size of what is left, as a share of both.
    """
    weight, text = place
    own_terms = [term for term in words.terms if (term.weight, term.text) == (weight, text) and term.part == part]
    scale = float(words.weights[weight].norm()) / words.zero_levels.get(part, 1.0)
    pull = sum(float(term.value.norm()) for term in own_terms if term.kind != "brake") * scale
    brake = sum(float(term.value.norm()) for term in own_terms if term.kind == "brake") * scale
    left = float(sum(term.value for term in own_terms).norm()) * scale if own_terms else 0.0  # type: ignore[union-attr]
    return pull, brake, left / (pull + brake) if pull + brake else 1.0


def _notes(analysis: Why, remark: str) -> Iterator[str]:
    words = analysis.words
    norms = [f"|{name}| = {float(value.norm()):.2g}" for name, value in words.weights.items()]
    over = "over the part's zero level" if words.zero_levels else "not scaled"
    yield f"sizes: of a word times its weight, {over}; left: |sum| over sum of norms; {_listed(norms)}"
    if remark:
        yield remark
    if analysis.null:
        yield f"no gradient by construction: {_listed(analysis.null)}"
    yield words.legend
    if words.maps:
        yield "attention maps: rows are queries, columns keys, averaged over the batch; darker is larger"
    if len(words.maps) > _MOST_MAPS:
        yield f"{len(words.maps) - _MOST_MAPS} more attention maps: --json"


def _map_title(attention: AttentionMap, counting: Collection[str]) -> str:
    even = "" if attention.evenness is None else f", evenness {attention.evenness:.2f} (1: uniform)"
    into = [f"{part} {size:.1e}" for part, size in attention.entering.items() if part in counting]
    return f"{attention.name}{even}" + (f"; gradient with respect to its logits: {', '.join(into)}" if into else "")


def _listed(names: Sequence[str] | dict[str, None]) -> str:
    shown = list(names)[:_MOST_NAMES]
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(shown) + more
