"""Named SQL: `queries/<file>.sql` holds statements, each headed by `-- name: <name>` and a line on what it decides."""

import re
from collections.abc import Mapping
from importlib.resources import files

_HEAD = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def load(file: str) -> Mapping[str, bytes]:
    """The statements of one file by name."""
    text = files("runtime.postgres_store").joinpath("queries", f"{file}.sql").read_text(encoding="utf-8")
    parts = _HEAD.split(text)[1:]
    return {
        name: _COMMENT.sub("", body).strip().encode()
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }
