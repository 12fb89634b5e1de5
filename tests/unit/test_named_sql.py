"""Every named statement says what it decides, and every name that the code asks for exists and is used."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from runtime.postgres_store.named import load

QUERIES = files("runtime.postgres_store").joinpath("queries")
NAMES = sorted(item.name.removesuffix(".sql") for item in QUERIES.iterdir() if item.name.endswith(".sql"))
CODE = "".join(path.read_text() for path in Path(str(QUERIES)).parent.glob("*.py"))


@pytest.mark.parametrize("file", NAMES)
def test_statements_have_a_description_and_a_caller(file: str) -> None:
    text = QUERIES.joinpath(f"{file}.sql").read_text(encoding="utf-8")
    described = re.findall(r"^-- name: (\w+)\n-- \S.*\n(?!--)", text, re.MULTILINE)
    assert described == list(load(file)), "each name is unique and has one line of description"
    unused = [name for name in described if f'"{name}"' not in CODE]
    assert unused == []
    assert all(statement and b"--" not in statement for statement in load(file).values())
