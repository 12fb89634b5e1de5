"""What the README tells people to write and to type."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(kind: str = "python") -> list[tuple[str, str]]:
    """(heading, code) of every block of that kind, in order."""
    found: list[tuple[str, str]] = []
    heading, code = "", None
    for line in README.read_text(encoding="utf-8").splitlines():
        if code is not None:
            if line.startswith("```"):
                found.append((heading, "".join(code)))
                code = None
            else:
                code.append(line + "\n")
        elif line == f"```{kind}":
            code = []
        elif re.match(r"#+ ", line):
            heading = line.lstrip("# ")
    return found


def code_of(heading: str, kind: str = "python") -> list[str]:
    """The blocks under that heading."""
    return [code for known, code in blocks(kind) if known == heading]


def commands_of(heading: str) -> list[str]:
    """The indented lines under that heading, without what is said beside them."""
    section = README.read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    section = re.split(r"^#+ ", section, maxsplit=1, flags=re.MULTILINE)[0]
    return [line.partition("  #")[0].strip() for line in section.splitlines() if line.startswith("    ")]
