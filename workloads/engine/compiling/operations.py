"""The C++ form of operations that compute an entry of their result from the same entry of their arguments."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from attnsweep.workloads.engine.executors import NoRuleError

Entry = tuple[str, torch.dtype]
"""A C++ expression, and the type of the tensor of which it is an entry."""
Form = Callable[..., str]
"""From the C++ type of the result, and the arguments: entries of tensors, or numbers."""

_C_TYPES = {
    **{torch.float32: "f", torch.float64: "d", torch.int64: "l", torch.int32: "i", torch.int16: "h", torch.int8: "c"},
    **{torch.bool: "b", torch.uint8: "u"},
}
SCALARS = {"f": "float", "d": "double", "l": "int64_t", "i": "int32_t", "h": "int16_t", "c": "int8_t", "u": "uint8_t"}
SCALARS["b"] = SCALARS["u"]
"""In `kernels.hpp` the left names are types of one number, or of one number of each training of a block."""


def c_type_of(dtype: torch.dtype) -> str:
    if dtype not in _C_TYPES:
        raise NoRuleError(f"numbers of the type {dtype} cannot be compiled")
    return _C_TYPES[dtype]


def name_of(target: Any) -> str:
    """`mul` of `aten.mul.Tensor`."""
    return str(target).split(".")[1] if "." in str(target) else str(target)


def literal(value: float, c_type: str) -> str:
    if c_type in "fd":
        text = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(str(float(value)), repr(float(value)))
        return f"k<{c_type}>({text}{'f' if c_type == 'f' and text[-1].isdigit() else ''})"
    return f"k<{c_type}>({int(value)}{'LL' if c_type == 'l' else ''})"


def in_type(to: str, x: Entry | float) -> str:
    if not isinstance(x, tuple):
        return literal(x, to)
    text, dtype = x
    if _C_TYPES[dtype] == to:
        return text
    return f"truth({text} != 0)" if to == "b" else f"to<{to}>({text})"


_OF_ONE = {
    "neg": "-{0}",
    "abs": "select(truth({0} < 0), -{0}, {0})",
    "reciprocal": "1 / {0}",
    "rsqrt": "1 / v_sqrt({0})",
    "square": "{0} * {0}",
    "ceil": "-v_floor(-{0})",
    "trunc": "select(truth({0} < 0), -v_floor(-{0}), v_floor({0}))",
    "silu": "{0} * v_sigmoid({0})",
    **{name: f"v_{name}({{0}})" for name in ("exp", "log", "log1p", "log2", "expm1", "sqrt", "sin", "cos", "atan")},
    **{name: f"v_{name}({{0}})" for name in ("tanh", "sinh", "cosh", "erf", "sigmoid", "floor", "relu", "sign")},
}
_OF_TWO = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "pow": "v_pow({0}, {1})",
    "fmod": "v_fmod({0}, {1})",
    **{"bitwise_and": "({0} & {1})", "bitwise_or": "({0} | {1})", "bitwise_xor": "({0} ^ {1})"},
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "v_sqrt({0})", 1.0: "{0}"}
_POWERS |= {-1.0: "1 / {0}", -0.5: "1 / v_sqrt({0})", -2.0: "1 / ({0} * {0})"}
COSTLY = {"exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "pow", "div", "silu"}
"""Operations that cost at least as much as storing their result and reading it again."""


def form_of(name: str) -> Form | None:
    if name in _OF_ONE:
        return lambda to, x: _OF_ONE[name].format(in_type(to, x))
    if name in _OF_TWO:
        return partial(_of_two, name)
    if name in _COMPARED:
        return lambda _, *pair: f"truth({f' {_COMPARED[name]} '.join(_alike(*pair))})"
    if name in _LOGICAL:
        return lambda _, x, y: f"({in_type('b', x)} {_LOGICAL[name]} {in_type('b', y)})"
    return _FORMS.get(name)


def _of_two(name: str, to: str, x: Any, y: Any, alpha: Any = 1, rounding_mode: str | None = None) -> str:
    if name == "pow" and not isinstance(y, tuple) and float(y) in _POWERS:
        return _POWERS[float(y)].format(in_type(to, x))
    if name == "div" and rounding_mode is None and not isinstance(y, tuple) and y:
        name, y = "mul", 1 / y
    if name == "add" and to == "b":
        name = "bitwise_or"
    second = in_type(to, y) if alpha == 1 else f"({in_type(to, y)} * {literal(alpha, to)})"
    text = _OF_TWO[name].format(in_type(to, x), second)
    if rounding_mode is None:
        return text
    if to not in "fd":
        _check_divisor(y)
        return f"to<{to}>(v_floor({in_type('d', x)} / {in_type('d', y)}))" if rounding_mode == "floor" else text
    return _OF_ONE[rounding_mode].format(f"({text})")


def _alike(*pair: Any) -> list[str]:
    """Both sides of a comparison, in the type in which PyTorch compares them."""
    of_type = [torch.empty(1, dtype=each[1]) if isinstance(each, tuple) else each for each in pair]
    return [in_type(c_type_of(torch.result_type(*of_type)), each) for each in pair]


def _clamp(to: str, x: Any, min: Any = None, max: Any = None) -> str:
    text = in_type(to, x)
    text = text if min is None else f"larger({text}, {in_type(to, min)})"
    return text if max is None else f"smaller({text}, {in_type(to, max)})"


def _check_divisor(y: Any) -> None:
    """Whole numbers divided by a 0 among the data would end the process."""
    if isinstance(y, tuple) or not y:
        raise NoRuleError("whole numbers divided by those of a tensor cannot be compiled")


def _remainder(to: str, x: Any, y: Any) -> str:
    if to not in "fd":
        _check_divisor(y)
    x, y = in_type(to, x), in_type(to, y)
    return f"({x} - {y} * v_floor({x} / {y}))" if to in "fd" else f"(({x} % {y} + {y}) % {y})"


_FORMS: dict[str, Form] = {
    **dict.fromkeys(("_to_copy", "convert_element_type"), lambda to, x: in_type(to, x)),
    "where": lambda to, condition, x, y: f"select({in_type('b', condition)}, {in_type(to, x)}, {in_type(to, y)})",
    "round": lambda to, x, decimals=0: "v_nearbyint({0} * {1}) / {1}".format(in_type(to, x), literal(10**decimals, to)),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda to, x, high: _clamp(to, x, None, high),
    "remainder": _remainder,
    "rsub": lambda to, x, y, alpha=1: _of_two("sub", to, y, x, alpha),
    "logical_not": lambda _, x: f"({in_type('b', x)} ^ 1)",
    "bitwise_not": lambda to, x: f"({in_type('b', x)} ^ 1)" if to == "b" else f"~{in_type(to, x)}",
    "isnan": lambda _, x: f"truth({x[0]} != {x[0]})",
    "isinf": lambda _, x: f"truth({_OF_ONE['abs'].format(x[0])} == {literal(math.inf, c_type_of(x[1]))})",
}
