"""The words of a program's weights as text: what multiplies the cotangent where a weight is read.

A product that is read once is written out; what is read several times gets a letter, and its gradient is G(letter).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import fx

from attnsweep.workloads.words.program import VIEWS, Program, ancestors, aten

_LONGEST = 34
"""Characters of what is written out; longer texts get a letter."""
_LETTERS: Mapping[Any, str] = {
    aten._softmax.default: "R",
    aten.relu.default: "M",
    aten.gelu.default: "M",
    aten.native_layer_norm.default: "N",
}
_FUNCTIONS: Mapping[Any, str] = {
    aten._softmax.default: "a",
    aten._log_softmax.default: "log a",
    aten.relu.default: "m",
    aten.gelu.default: "gelu",
    aten.native_layer_norm.default: "norm",
    aten.rsqrt.default: "rsqrt",
    aten.exp.default: "exp",
    aten.embedding.default: "rows",
}
_BACK: Mapping[Any, str] = {aten._softmax.default: "aa", aten.relu.default: "mm"}
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
_SUMS = (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar)
_TURNED = (aten.t.default, aten.transpose.int, aten.permute.default)


class Reading:
    """The texts of one program.

    Args:
        program: The loss.
        values: Those of its nodes.
        outputs: The nodes at which cotangents begin.
    """

    def __init__(self, program: Program, values: Mapping[fx.Node, Any], outputs: Collection[fx.Node]) -> None:
        self._program = program
        self._outputs = outputs
        self._dependent = program.dependent(values)
        self._of_place = {place: name for name, place in program.places}
        self._letters: dict[fx.Node, str] = {}
        self._defined: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def is_read(self, place: fx.Node) -> bool:
        """Whether a gradient flows to a place: some operations read the shape of a weight alone."""
        return any(user in self._dependent for user in place.users)

    def word(self, place: fx.Node) -> str:
        """The word of the weight that is read at a place, with `C` where cotangents begin."""
        return self._cotangent(place, depth=0)

    def definitions(self) -> Sequence[str]:
        """What the letters stand for, in the order in which they came up."""
        return [f"{letter} = {text}" for letter, text in self._defined.items()]

    def _cotangent(self, node: fx.Node, depth: int) -> str:
        """The gradient of the loss by a node."""
        if node in self._outputs:
            return "C"
        readers = [user for user in node.users if user in self._dependent]
        if len(readers) != 1:
            return f"G({self._named(node)})"
        (user,) = readers
        above = self._cotangent(user, depth + 1)
        text = self._back(user, node, above)
        if depth and len(text) > _LONGEST:
            return f"G({self._named(node)})"
        return text

    def _back(self, user: fx.Node, node: fx.Node, above: str) -> str:
        """The gradient by an argument of an operation, given that by its result."""
        if user.target in _TURNED and _turns(user):
            return _transposed(above)
        if user.target in VIEWS or user.target.__name__ == "getitem":  # type: ignore[union-attr]
            return above
        if user.target in _PRODUCTS:
            left, right = user.args[:2]
            return (
                f"{_factor(above)} {self._turned(right)}" if left is node else f"{self._turned(left)} {_factor(above)}"
            )
        if user.target in (aten.addmm.default, aten.baddbmm.default):
            bias, left, right = user.args[:3]
            if bias is node:
                return f"1' {_factor(above)}"
            return (
                f"{_factor(above)} {self._turned(right)}" if left is node else f"{self._turned(left)} {_factor(above)}"
            )
        if user.target in _SUMS:
            is_minus = user.target == aten.rsub.Scalar or (user.target == aten.sub.Tensor and user.args[1] is node)
            return f"-{above}" if is_minus else above
        if user.target in (aten.mul.Tensor, aten.div.Tensor) and user.args[0] is not user.args[1]:
            other = user.args[1] if user.args[0] is node else user.args[0]
            return f"{self._factor(other)} * {_factor(above)}"
        if user.target == aten.addcmul.default:
            if user.args[0] is node:
                return f"1' {_factor(above)}"
            other = user.args[2] if user.args[1] is node else user.args[1]
            return f"{self._factor(other)} * {_factor(above)}"
        if user.target == aten.embedding.default:
            return f"{self._turned(user.args[1])} {_factor(above)}"
        if (back := _BACK.get(user.target)) is not None:
            return f"{back}({self._text(user.args[0])}, {above})"
        return f"d{_name(user)}({above})"

    def _turned(self, node: Any) -> str:
        return _transposed(self._text(node))

    def _factor(self, node: Any) -> str:
        text = self._text(node)
        return f"({text})" if " + " in text or " * " in text else text

    def _text(self, node: Any) -> str:
        """A value, written out or by its letter."""
        if not isinstance(node, fx.Node):
            return f"{node:.3g}" if isinstance(node, float) else str(node)
        if (name := self._of_place.get(node)) is not None:
            return name.removesuffix(".weight")
        if (name := self._program.names.get(node)) is not None:
            return name.removesuffix(".weight")
        if node in self._letters:
            return self._letters[node]
        if node.target in _TURNED and _turns(node):
            return _transposed(self._text(node.args[0]))
        if node.target in VIEWS or _name(node) in ("getitem", "_to_copy"):
            return self._text(node.all_input_nodes[0])
        return self._written(node)

    def _written(self, node: fx.Node) -> str:
        if node not in self._dependent:
            names = sorted({self._program.names[each] for each in _inputs(node) if each in self._program.names})
            return f"[{', '.join(names)}]" if names else "1"
        return self._named(node)

    def _named(self, node: fx.Node) -> str:
        """The letter of a value, defined when it is first met."""
        if node in self._of_place or node in self._program.names:
            return self._text(node)
        if node.target in VIEWS or _name(node) == "getitem":
            return self._named(node.all_input_nodes[0])
        if node not in self._letters:
            kind = _LETTERS.get(node.target, "H")
            self._counts[kind] = self._counts.get(kind, 0) + 1
            letter = self._letters[node] = f"{kind}{self._counts[kind]}"
            self._defined[letter] = self._formula(node)
        return self._letters[node]

    def _formula(self, node: fx.Node) -> str:
        of = [self._text(each) for each in node.args if isinstance(each, fx.Node | float)]
        if node.target in _PRODUCTS:
            return " ".join(f"({each})" if " + " in each else each for each in of)
        if node.target in (aten.addmm.default, aten.baddbmm.default):
            return f"{of[1]} {of[2]} + 1 {of[0]}"
        if node.target in _SUMS:
            return (" - " if node.target == aten.sub.Tensor else " + ").join(of)
        if node.target == aten.mul.Tensor:
            return " * ".join(of)
        if node.target == aten.addcmul.default:
            return f"{of[0]} + {of[1]} * {of[2]}"
        name = _FUNCTIONS.get(node.target, _name(node))
        return f"{name}({', '.join(of)})"


def _name(node: fx.Node) -> str:
    of: Callable[..., Any] | str = node.target
    return of if isinstance(of, str) else of.__name__.partition(".")[0]


def _turns(node: fx.Node) -> bool:
    """Whether it exchanges the last two axes."""
    if node.target == aten.t.default:
        return True
    if node.target == aten.transpose.int:
        return {node.args[1], node.args[2]} in ({-1, -2},)
    axes: Any = node.args[1]
    return list(axes[-2:]) == [len(axes) - 1, len(axes) - 2]


def _transposed(text: str) -> str:
    """A product is turned factor by factor: (A B)' = B' A'."""
    if text.startswith("-"):
        return f"-{_transposed(text[1:])}"
    factors = _factors(text)
    if len(factors) == 1 and text.startswith("(") and text.endswith(")'"):
        return text[1:-2]
    if any(each in "+-*" for each in factors):
        return f"({text})'"
    return " ".join(_turned_factor(each) for each in reversed(factors))


def _turned_factor(text: str) -> str:
    return text.removesuffix("'") if text.endswith("'") else f"{text}'"


def _factors(text: str) -> list[str]:
    """What stands between spaces outside brackets."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == " " and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


def _factor(text: str) -> str:
    return f"({text})" if text.startswith("-") or " + " in text or " * " in text else text


def _inputs(node: fx.Node) -> set[fx.Node]:
    return {each for each in ancestors(node) if each.op == "placeholder"}
