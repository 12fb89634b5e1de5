"""Names of the SQL view over a sheet and of its columns: real names where they fit, stable, never taken twice. Pure."""

import hashlib
import re
from collections.abc import Iterable, Sequence

IDENTIFIER_BYTES = 63  # what Postgres keeps of a name
OWN_COLUMNS = ("_row_key", "_state", "_run_id", "_updated_at")
SCRATCH = "_"  # computed columns that begin so are not stored

_PREFIX = "sheet"
_UNSAFE = re.compile(r"[^a-z0-9]+")
_HASH_CHARS = 8

Named = tuple[str, str]
"""(column's name, its identifier in the view)"""


def view_name(org_id: str, play: str, namespace: str) -> str:
    """`sheet__<org>__<play>__<namespace>`; with a hash where a part had to be changed or cut."""
    parts = [_UNSAFE.sub("_", part.lower()).strip("_") for part in (org_id, play, namespace)]
    name = "__".join((_PREFIX, *parts))
    if parts == [org_id, play, namespace] and len(name) <= IDENTIFIER_BYTES:
        return name
    return _cut(name, "\x00".join((org_id, play, namespace)))


def added_columns(known: Sequence[Named], names: Iterable[str], *, most: int) -> list[Named]:
    """Columns that a view gets beside its `known` ones, which keep their place and identifier for ever."""
    taken = {*OWN_COLUMNS, *(identifier for _, identifier in known)}
    seen = {name for name, _ in known}
    added: list[Named] = []
    for name in names:
        if name in seen or len(seen) >= most:
            continue
        seen.add(name)
        identifier = _identifier(name, taken)
        taken.add(identifier)
        added.append((name, identifier))
    return added


def stored_columns(inputs: Iterable[str], computed: Iterable[str]) -> list[str]:
    """A sheet's columns: those of its input, then those that were computed."""
    shown = (name for name in computed if not name.startswith(SCRATCH))
    return list(dict.fromkeys([*inputs, *shown]))


def _identifier(name: str, taken: set[str]) -> str:
    if name and len(name.encode()) <= IDENTIFIER_BYTES and name not in taken:
        return name
    return _cut(name, name)


def _cut(name: str, whole: str) -> str:
    mark = "_" + hashlib.sha256(whole.encode()).hexdigest()[:_HASH_CHARS]
    return name.encode()[: IDENTIFIER_BYTES - len(mark)].decode("utf-8", "ignore") + mark
