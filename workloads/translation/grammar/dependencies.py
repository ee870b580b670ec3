"""Who depends on whom in a tree, by the places of the words: the same in both languages."""

from attnsweep.workloads.translation.grammar.tree import CommonNoun, Phrase, Sentence

RELATIONS = ("subject", "object", "adjective", "determiner", "possessor", "relative")
_SUBJECT, _OBJECT, _ADJECTIVE, _DETERMINER, _POSSESSOR, _RELATIVE = range(len(RELATIONS))


def dependencies(sentence: Sentence) -> list[tuple[int, str, str]]:
    """(relation, dependent place, governor place) of every arc.

    A relative clause's noun is the subject or object of the clause's verb, which is itself the noun's `relative`. The
    possessive 's is a determiner of what is possessed, as il is.
    """
    arcs = _within("subject", sentence.subject)
    arcs.append((_SUBJECT, "subject.head", "verb"))
    if sentence.obj is not None:
        arcs.append((_OBJECT, "object.head", "verb"))
        arcs += _within("object", sentence.obj)
    return arcs


def _within(role: str, phrase: Phrase) -> list[tuple[int, str, str]]:
    if not isinstance(phrase, CommonNoun):
        return []
    head = f"{role}.head"
    arcs = [(_DETERMINER, f"{role}.determiner", head)]
    if phrase.adjective is not None:
        arcs.append((_ADJECTIVE, f"{role}.adjective", head))
    if phrase.owner is not None:
        arcs.append((_POSSESSOR, f"{role}.owner", head))
    if phrase.relative is not None:
        verb, subject, obj = f"{role}.relative.verb", f"{role}.relative.subject", f"{role}.relative.object"
        arcs.append((_RELATIVE, verb, head))
        arcs.append((_SUBJECT, head if phrase.relative.subject is None else f"{subject}.head", verb))
        if phrase.relative.subject is not None:
            arcs.append((_OBJECT, head, verb))
            arcs += _within(subject, phrase.relative.subject)
        elif phrase.relative.obj is not None:
            arcs.append((_OBJECT, f"{obj}.head", verb))
            arcs += _within(obj, phrase.relative.obj)
    return arcs
