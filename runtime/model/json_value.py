"""JSON values at the edge: exact numbers, text that Postgres can hold, a bounded depth.

The stated policy (FAULTS B18): a value either round-trips exactly or is refused with its path.
"""

import json
import math
import re
from typing import Any, NoReturn

import orjson

from runtime.errors import JsonValueError

_LONG_DIGITS = re.compile(rb"\d{19}")
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(data: bytes) -> Any:
    """Parse JSON text without losing an integer's digits; NaN, infinities and 1e400 are refused."""
    try:
        value = _loads_exact(data) if _LONG_DIGITS.search(data) else orjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise JsonValueError("$", f"not JSON: {error}") from error
    return value


def dumps(value: Any) -> bytes:
    """Compact JSON text of a checked value, integers of any size written exactly."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError, RecursionError):
        check(value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def check(value: Any, *, path: str = "$", max_depth: int = 500) -> Any:
    """Walk `value` once; return it, or raise JsonValueError with the path of what can't be stored."""
    try:
        _walk(value, path, max_depth)
    except RecursionError:
        raise JsonValueError(path, "nested too deeply") from None
    return value


def same(one: Any, other: Any) -> bool:
    """Equal as JSON values: numbers by their worth (JSONB respells them), true is not 1, names in any order."""
    pairs = [(one, other)]  # a list, not recursion: deep values compare too
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if one.keys() != other.keys():
                return False
            pairs.extend((item, other[name]) for name, item in one.items())
        elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
            if len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif isinstance(one, bool) != isinstance(other, bool) or one != other:
            return False
    return True


def _walk(value: Any, path: str, depth: int) -> None:
    """One frame a level: 500 levels must fit below Python's own limit."""
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is float:
        _check_float(value, path)
    elif kind is dict or kind is list or kind is tuple:
        if depth <= 0:
            raise JsonValueError(path, "nested too deeply")
        for name, item in value.items() if kind is dict else enumerate(value):
            if kind is dict:
                _check_name(name, path)
            if type(item) is not int:
                _walk(item, f"{path}.{name}" if kind is dict else f"{path}[{name}]", depth - 1)
    elif kind is not int and kind is not bool and value is not None:
        _refuse(value, path)


def _check_name(name: Any, path: str) -> None:
    if type(name) is not str:
        raise JsonValueError(path, f"a key is {type(name).__name__}, not text: {name!r:.80}")
    _check_text(name, path)


def _check_text(value: str, path: str) -> None:
    if value.isascii():
        if "\x00" in value:
            raise JsonValueError(path, "text holds a NUL character")
        return
    if "\x00" in value:
        raise JsonValueError(path, "text holds a NUL character")
    if _SURROGATE.search(value):
        raise JsonValueError(path, "text holds half of a surrogate pair")


def _check_float(value: float, path: str) -> None:
    if not math.isfinite(value):
        raise JsonValueError(path, f"{value} is not a finite number")


def _refuse(value: Any, path: str) -> NoReturn:
    if hasattr(value, "send") and hasattr(value, "close"):
        raise JsonValueError(path, "a coroutine was returned and never awaited: add `await`")
    raise JsonValueError(
        path, f"{type(value).__name__} is not a JSON value: turn it into text, a number, a list or a dict"
    )


def _loads_exact(data: bytes) -> Any:
    def refuse_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not a JSON number")

    return json.loads(data, parse_constant=refuse_constant)
