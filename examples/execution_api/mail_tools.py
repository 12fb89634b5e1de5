"""Three providers of mail addresses, made up: what each of them knows is a pure function of the question."""

import hashlib
from typing import Any

from examples.execution_api.item_error import ItemError, RefusedError
from examples.execution_api.misbehaviour import ForcedAnswer
from examples.execution_api.tools import Tool

OUT_OF_CREDIT = "provider_account_out_of_credit"


def directory_email(input: dict[str, Any]) -> dict[str, Any]:
    """Knows one person in three."""
    name, domain = _asked(input)
    return _found(f"{_words(name)[0]}@{domain}" if _draw(name, domain) % 3 == 0 else None)


def archive_email(input: dict[str, Any]) -> dict[str, Any]:
    """Knows one person in two; for one domain in four its account has no credit left."""
    name, domain = _asked(input)
    if _draw(domain) % 4 == 0:
        said = "the account at the mail archive has no credit left"
        forced = ForcedAnswer(status=402, code=OUT_OF_CREDIT, message=said, origin="provider")
        raise RefusedError(402, OUT_OF_CREDIT, said, forced=forced)
    return _found(f"{'.'.join(_words(name))}@{domain}" if _draw(domain, name) % 2 == 0 else None)


def pattern_email(input: dict[str, Any]) -> dict[str, Any]:
    """Makes an address of a first and a last name; of one name alone it makes none."""
    name, domain = _asked(input)
    words = _words(name)
    return _found(f"{words[0][0]}{words[-1]}@{domain}" if len(words) > 1 else None)


MAIL_TOOLS = (
    Tool(name="directory_email", provider="mail_directory", answer=directory_email, credits_per_item=1),
    Tool(
        name="archive_email",
        provider="mail_archive",
        answer=archive_email,
        credits_per_item=3,
        is_batched=False,
    ),
    Tool(name="pattern_email", provider="mail_patterns", answer=pattern_email, credits_per_item=1),
)


def _found(email: str | None) -> dict[str, Any]:
    return {"found": email is not None, "email": email}


def _asked(input: dict[str, Any]) -> tuple[str, str]:
    for field in ("name", "domain"):
        value = input.get(field)
        if not isinstance(value, str) or not value.strip():
            raise ItemError(f"bad_{field}", f"{field} must be text, not {value!r:.40}")
    return input["name"].strip(), input["domain"].strip()


def _words(name: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)).lower() or "x" for word in name.split()]


def _draw(*parts: str) -> int:
    return hashlib.sha256("\0".join(parts).encode()).digest()[0]
