"""JSON values at the edge: exact numbers, text that Postgres can hold, a bounded depth.

The stated policy: a value either round-trips exactly or is refused with its path; README has it as a table.
"""

import json
import math
import re
from typing import Any, NoReturn

import orjson

from runtime.errors import JsonValueError

_LONG_DIGITS = re.compile(rb"\d{19}")
_SURROGATE = re.compile("[\ud800-\udfff]")
INTEGER_DIGITS = 4_000  # Python stops at 4,300 by default, Postgres far beyond
_MOST = 10**INTEGER_DIGITS - 1
_LONGEST_HINT = 40
_SPARE_BYTES = 4_096
MOST_VALUES = 16 * 1024 * 1024  # each takes a byte at least, and no limit of bytes is higher
_CONTAINERS = frozenset((dict, list, tuple))
_SMALL = 16
_LEAST_SMALL, _MOST_SMALL = -(2**63), 2**63
_LEVEL_BITS = 10  # a container's count and levels are one number, since many are remembered
_LEVELS = (1 << _LEVEL_BITS) - 1


class Repeated(dict[str, Any]):
    """A JSON object in which a name stood twice: nobody can say which value was meant, so it is refused."""

    name = ""


class Unreadable:
    """Stands where a parsed text holds a number that no value can show."""

    def __init__(self, text: str) -> None:
        self.what = f"a number of {len(text):,} digits" if len(text) > _LONGEST_HINT else f"the number {text}"


def loads(data: bytes) -> Any:
    """Parse JSON text without losing an integer's digits; NaN, infinities and 1e400 are refused."""
    try:
        value = _loads_exact(data) if _LONG_DIGITS.search(data) else orjson.loads(data)
    except (ValueError, RecursionError) as error:
        raise JsonValueError("$", f"not JSON: {error}") from error
    return value


def loads_foreign(data: bytes) -> Any:
    """Parse text that others wrote: what can't be kept stays visible, for `check` to refuse with its path.

    NaN and infinities come as floats, a repeated name as `Repeated`, an endless integer as `Unreadable`.
    """
    try:
        return json.loads(data, object_pairs_hook=_pairs, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise JsonValueError("$", f"not JSON: {error}") from error


def dumps(value: Any) -> bytes:
    """Compact JSON text of a checked value, integers of any size written exactly."""
    try:
        return tight(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError):
        check(value)
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def tight(text: bytes) -> bytes:
    """The same text without spare room: orjson leaves a short one in a buffer of 4 KiB for as long as it lives."""
    return bytes(memoryview(text)) if len(text) < _SPARE_BYTES else text


def check(value: Any, *, path: str = "$", max_depth: int = 500) -> Any:
    """Walk `value` once; return it, or raise JsonValueError with the path of what can't be stored.

    What stands in several places is walked once, and counts wherever it stands.
    """
    try:
        if type(value) in _CONTAINERS:
            _walk(value, path, min(max_depth, _LEVELS - 1), {})
        else:
            _check_single(value, path)
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


def _walk(value: Any, path: str, depth: int, seen: dict[int, int]) -> int:
    """How many values a container holds, and its levels. One frame a level: 500 must fit."""
    if depth <= 0:
        raise JsonValueError(path, "nested too deeply")
    known = seen.get(id(value))
    if known is not None:
        if known & _LEVELS > depth:
            _refuse_deep(value, path, depth, seen)
        return known
    is_dict = type(value) is dict
    count, height = len(value) + 1, 0
    for name, item in value.items() if is_dict else enumerate(value):
        if is_dict and not (type(name) is str and name.isascii() and "\x00" not in name):
            _check_name(name, path)
        if type(item) in _CONTAINERS:
            found = _walk(item, _step(path, name, is_dict), depth - 1, seen)
            count += (found >> _LEVEL_BITS) - 1
            height = max(height, found & _LEVELS)
        elif not _is_plain(item):
            _check_single(item, _step(path, name, is_dict))
    found = count << _LEVEL_BITS | height + 1
    if height or count > _SMALL:
        if count > MOST_VALUES:
            _refuse_many(path)
        seen[id(value)] = found
    return found


def _refuse_many(path: str) -> NoReturn:
    raise JsonValueError(
        path,
        f"more than {MOST_VALUES:,} values, where what stands in several places counts in each: keep it once",
    )


def _step(path: str, name: Any, is_dict: bool) -> str:
    return f"{path}.{name}" if is_dict else f"{path}[{name}]"


def _is_plain(value: Any) -> bool:
    """Whether a look is enough, as for most."""
    kind = type(value)
    if kind is str:
        return value.isascii() and "\x00" not in value
    return value is None or kind is bool or (kind is int and _LEAST_SMALL < value < _MOST_SMALL)


def _check_single(value: Any, path: str) -> None:
    kind = type(value)
    if kind is str:
        _check_text(value, path)
    elif kind is float:
        _check_float(value, path)
    elif kind is int:
        _check_integer(value, path)
    elif kind is not bool and value is not None:
        _refuse(value, path)


def _refuse_deep(value: Any, path: str, depth: int, seen: dict[int, int]) -> NoReturn:
    """At the first place within `value`, walked before where there was more room, that is too deep here."""
    while depth > 0:
        is_dict = isinstance(value, dict)
        for name, item in value.items() if is_dict else enumerate(value):
            if _height(item, seen) > depth - 1:
                value, path, depth = item, _step(path, name, is_dict), depth - 1
                break
    raise JsonValueError(path, "nested too deeply")


def _height(value: Any, seen: dict[int, int]) -> int:
    if type(value) not in _CONTAINERS:
        return 0
    return seen.get(id(value), 1) & _LEVELS  # what isn't remembered holds no container


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


def _check_integer(value: int, path: str) -> None:
    if not -_MOST <= value <= _MOST:
        raise JsonValueError(path, f"the integer has more than {INTEGER_DIGITS:,} digits")


def _check_float(value: float, path: str) -> None:
    if not math.isfinite(value):
        raise JsonValueError(path, f"{value} is not a finite number")


def _refuse(value: Any, path: str) -> NoReturn:
    if isinstance(value, Repeated):
        raise JsonValueError(path, f"the name {value.name!r:.80} stands twice in one object")
    if isinstance(value, Unreadable):
        raise JsonValueError(path, f"{value.what} can't be kept exactly")
    own_reason = getattr(type(value), "not_json", None)
    if isinstance(own_reason, str):
        raise JsonValueError(path, own_reason)
    if hasattr(value, "__await__"):
        kind = type(value).__name__.lower()
        raise JsonValueError(path, f"a {kind} was returned and never awaited: add `await`")
    instead = _INSTEAD.get(type(value).__name__, "turn it into text, a number, a list or a dict")
    raise JsonValueError(path, f"{type(value).__name__} is not a JSON value: {instead}")


_INSTEAD = {
    "datetime": "write value.isoformat()",
    "date": "write value.isoformat()",
    "Decimal": "write str(value), or float(value) where that is exact enough",
    "bytes": "decode it to text, or write base64",
    "set": "write sorted(value)",
    "frozenset": "write sorted(value)",
    "UUID": "write str(value)",
    "generator": "write list(value)",
    "async_generator": "write [one async for one in value]",
    "DatasetBuilder": "run it: `await ctx.dataset(...).with_column(...).run(key=...)` gives its handle",
}


def heaviest(value: Any, path: str) -> tuple[str, int]:
    """(path, JSON bytes) of the deepest part that makes up more than half of a checked value."""
    size = len(dumps(value))
    while isinstance(value, (dict, list, tuple)) and value:
        if isinstance(value, dict):
            parts = [(len(dumps(item)), f"{path}.{name}", item) for name, item in value.items()]
        else:
            parts = [(len(dumps(item)), f"{path}[{at}]", item) for at, item in enumerate(value)]
        most = max(parts, key=lambda part: part[0])
        if most[0] * 2 <= size:
            break
        size, path, value = most
    return path, size


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    twice = Repeated(made)
    names = [name for name, _ in pairs]
    twice.name = next(name for at, name in enumerate(names) if name in names[:at])
    return twice


def _integer(text: str) -> Any:
    return int(text) if len(text) <= INTEGER_DIGITS else Unreadable(text)


def _loads_exact(data: bytes) -> Any:
    def refuse_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not a JSON number")

    return json.loads(data, parse_constant=refuse_constant)
