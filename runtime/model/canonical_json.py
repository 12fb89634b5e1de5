"""Canonical JSON for keys: RFC 8785, except that integers are written exactly at any size."""

import hashlib
from typing import Any

import orjson
import rfc8785

_PLAIN = (str, bool, type(None))  # written alike by orjson and RFC 8785


def canonical(value: Any) -> bytes:
    """The one text of `value`; equal values give equal bytes in every process."""
    if isinstance(value, str):
        return orjson.dumps(value)
    if value is None or isinstance(value, bool):
        return b"null" if value is None else (b"true" if value else b"false")
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, float):
        return rfc8785.dumps(value)
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(canonical(item) for item in value) + b"]"
    return _canonical_object(value)


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical text."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _canonical_object(value: dict[str, Any]) -> bytes:
    ascii_keys = all(map(str.isascii, value))
    if ascii_keys and all(type(item) in _PLAIN for item in value.values()):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)  # the same text, several times faster
    keys = sorted(value, key=None if ascii_keys else _utf16)
    return b"{" + b",".join(orjson.dumps(key) + b":" + canonical(value[key]) for key in keys) + b"}"


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be", "surrogatepass")
