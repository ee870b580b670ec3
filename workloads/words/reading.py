"""Writes the terms of a gradient ("words") as text: each is the product of the factors by which the gradient at the
model's output is multiplied on its way to a weight.

A product that one operation reads is written out. A tensor that several operations read gets a letter, and its gradient
is written G(letter).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from torch import fx

from attnsweep.workloads.words.program import VIEWS, Program, ancestors, aten

_LONGEST = 34
"""The largest number of characters of an expression that is written out; a letter replaces longer ones."""
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
_SUMS_WITH_BIAS = (aten.addmm.default, aten.baddbmm.default, aten.addcmul.default)
_SUMS = (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Scalar)
_TURNED = (aten.t.default, aten.transpose.int, aten.permute.default)


class Reading:
    """Writes as text the terms that add up to the gradient of a weight, and defines the letters that stand for tensors
    in these texts.

    Args:
        program: The loss.
        values: The values of the program's nodes.
        outputs: The nodes of the model's outputs, where gradients begin.
    """

    def __init__(self, program: Program, values: Mapping[fx.Node, Any], outputs: Collection[fx.Node]) -> None:
        self._program = program
        self._outputs = outputs
        self._dependent = program.dependent(values)
        self._name_at = {place: name for name, place in program.places}
        self._letters: dict[fx.Node, str] = {}
        self._defined: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def is_read(self, place: fx.Node) -> bool:
        """Returns whether a gradient flows to a weight through `place`, the node that passes the weight on to one
        operation. None flows if the operation uses only the weight's shape."""
        return any(user in self._dependent for user in place.users)

    def word(self, place: fx.Node) -> str:
        """Writes as text one of the terms whose sum is a weight's gradient. The computation of the loss may use the
        weight at several places, and each of them gives one term; `place` is that of the wanted term.

        In the text, `C` stands for the gradient at the model's output.
        """
        return self._cotangent(place, depth=0)

    def definitions(self) -> Sequence[str]:
        """Returns definitions, such as `R1 = a(x)`, of the letters that stand for tensors in all texts that this object
        has written, in the order of first use.
        """
        return [f"{letter} = {text}" for letter, text in self._defined.items()]

    def _cotangent(self, node: fx.Node, depth: int) -> str:
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
        """Returns as text the gradient with respect to `node`, which is an input of the operation `user`. The text
        `above` is the gradient with respect to the operation's result.
        """
        if user.target in _TURNED and _turns(user):
            return _transposed(above)
        if user.target in VIEWS or user.target.__name__ == "getitem":  # type: ignore[union-attr]
            return above
        if user.target in _SUMS_WITH_BIAS and user.args[0] is node:
            return f"1' {_factor(above)}"
        if user.target in (*_PRODUCTS, aten.addmm.default, aten.baddbmm.default):
            left, right = user.args[:2] if user.target in _PRODUCTS else user.args[1:3]
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
        if not isinstance(node, fx.Node):
            return f"{node:.3g}" if isinstance(node, float) else str(node)
        if (name := self._name_at.get(node) or self._program.names.get(node)) is not None:
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
            names = sorted({self._program.names[source] for source in _inputs(node) if source in self._program.names})
            return f"[{', '.join(names)}]" if names else "1"
        return self._named(node)

    def _named(self, node: fx.Node) -> str:
        """Returns the letter that stands for a tensor in the formulas that this object writes, and defines the letter
        at its first use."""
        if node in self._name_at or node in self._program.names:
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
        arguments = [self._text(argument) for argument in node.args if isinstance(argument, fx.Node | float)]
        if node.target in _PRODUCTS:
            return " ".join(f"({argument})" if " + " in argument else argument for argument in arguments)
        if node.target in (aten.addmm.default, aten.baddbmm.default):
            return f"{arguments[1]} {arguments[2]} + 1 {arguments[0]}"
        if node.target in _SUMS:
            return (" - " if node.target == aten.sub.Tensor else " + ").join(arguments)
        if node.target == aten.mul.Tensor:
            return " * ".join(arguments)
        if node.target == aten.addcmul.default:
            return f"{arguments[0]} + {arguments[1]} * {arguments[2]}"
        name = _FUNCTIONS.get(node.target, _name(node))
        return f"{name}({', '.join(arguments)})"


def _name(node: fx.Node) -> str:
    target: Callable[..., Any] | str = node.target
    return target if isinstance(target, str) else target.__name__.partition(".")[0]


def _turns(node: fx.Node) -> bool:
    """Returns whether an operation transposes the last two axes of its input."""
    if node.target == aten.t.default:
        return True
    if node.target == aten.transpose.int:
        return {node.args[1], node.args[2]} in ({-1, -2},)
    axes: Any = node.args[1]
    return list(axes[-2:]) == [len(axes) - 1, len(axes) - 2]


def _transposed(text: str) -> str:
    """Returns the text of the transpose of an expression. For a product it reverses and transposes the factors: (A B)'
    = B' A'.
    """
    if text.startswith("-"):
        return f"-{_transposed(text[1:])}"
    factors = _factors(text)
    if len(factors) == 1 and text.startswith("(") and text.endswith(")'"):
        return text[1:-2]
    if any(factor in "+-*" for factor in factors):
        return f"({text})'"
    return " ".join(_turned_factor(factor) for factor in reversed(factors))


def _turned_factor(text: str) -> str:
    return text.removesuffix("'") if text.endswith("'") else f"{text}'"


def _factors(text: str) -> list[str]:
    """Splits the text of a matrix product into its factors, at the spaces outside of brackets."""
    factors, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == " " and not depth:
            factors.append("")
        else:
            factors[-1] += character
    return factors


def _factor(text: str) -> str:
    return f"({text})" if text.startswith("-") or " + " in text or " * " in text else text


def _inputs(node: fx.Node) -> set[fx.Node]:
    return {source for source in ancestors(node) if source.op == "placeholder"}
