"""The README's play and its test, as they stand there."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "README.md"


def snippets() -> list[str]:
    section = README.read_text().partition("### Test a play")[2].partition("\n### ")[0].partition("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_readmes_test_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test, plays = snippets()
    (tmp_path / "myplays.py").write_text(plays)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(test, "test_myplays.py", "exec"), names)
    names["test_greet_companies"]()
    sys.modules.pop("myplays")
