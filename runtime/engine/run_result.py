"""What a body returned, as the JSON that its run keeps."""

from collections.abc import Mapping
from typing import Any

from runtime.context.csv_rows import CsvHandle
from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.kept_value import KeptValue
from runtime.policy.limits import Limits


def result_json(value: Any, limits: Limits) -> bytes:
    """Checked JSON text of a result; handles become objects. Raises JsonValueError with the path."""
    plain = _plain(value, "$", limits.value_depth)
    text = json_value.dumps(json_value.check(plain, path="$", max_depth=limits.value_depth))
    if len(text) > limits.result_bytes:
        raise JsonValueError(
            "$",
            f"the play returned {len(text):,} bytes; a result holds at most {limits.result_bytes:,}: "
            "return the dataset's handle, its rows are in the sheet",
        )
    return text


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth < 0:
        raise JsonValueError(path, "nested too deeply")
    if isinstance(value, (KeptValue, CsvHandle)):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(item, f"{path}.{name}", depth - 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{position}]", depth - 1) for position, item in enumerate(value)]
    return value
