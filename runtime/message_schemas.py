"""JSON schemas of the messages and events, generated from their models: `python -m runtime.message_schemas`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.model.events import wire
from runtime.model.messages import EventMessage, PlayRunMessage, RunCancelMessage

FOLDER = Path(__file__).parent / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> Mapping[str, dict[str, Any]]:
    """File name -> schema."""
    messages = {"plays.run": PlayRunMessage, "runs.cancel": RunCancelMessage, "events.deliver": EventMessage}
    found = {f"{name}.v1.json": model.model_json_schema() for name, model in messages.items()}
    found["run.event.v1.json"] = wire.json_schema()
    return {name: {"$schema": DIALECT, **schema} for name, schema in found.items()}


def text_of(schema: dict[str, Any]) -> str:
    """The schema as its file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all files anew."""
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(text_of(schema), encoding="utf-8")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
