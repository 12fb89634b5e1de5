"""Small modules, short functions: a gate, not a taste."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("broker_config", "runtime", "workers", "examples", "bench", "tests")
MODULE_LINES = 500
FUNCTION_LINES = 60

MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def long_functions(tree: ast.AST) -> list[str]:
    return [
        f"{node.name} at line {node.lineno}: {length} lines"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_and_its_functions_are_small(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= MODULE_LINES, f"split it: more than {MODULE_LINES} lines"
    assert not long_functions(ast.parse(source)), f"split them: more than {FUNCTION_LINES} lines"


def test_the_gate_sees_a_long_function() -> None:
    body = "\n".join("    pass" for _ in range(FUNCTION_LINES))
    assert long_functions(ast.parse(f"async def wide():\n{body}\n")) == ["wide at line 1: 61 lines"]
    assert not long_functions(ast.parse(f"def narrow():\n{body[:-9]}\n"))
