"""Secret values out of text: as they are, and as encodings spell them. Pure."""

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import quote, quote_plus

SHORTEST = 4
"""A shorter value would blacken ordinary text: it is known only as a whole."""


@lru_cache(maxsize=1_000)
def spellings(value: str) -> tuple[str, ...]:
    """Every form in which `value` may stand in text, the value itself first."""
    raw = value.encode("utf-8", "surrogatepass")
    forms = [value, *_percent(value), *_escaped(value), raw.hex(), raw.hex().upper(), *_base64(raw)]
    return tuple(dict.fromkeys(form for form in forms if len(form) >= SHORTEST))


def _percent(value: str) -> list[str]:
    raw = value.encode("utf-8", "surrogatepass")
    encoded = [quote(raw, safe=""), quote(raw), quote_plus(raw)]
    lower = [re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), one) for one in encoded]
    whole = "".join(f"%{byte:02X}" for byte in raw)
    return [*encoded, *lower, whole, whole.lower()]


def _escaped(value: str) -> list[str]:
    """Inside JSON, inside JSON inside JSON, as Python and HTML write it."""
    once = json.dumps(value)[1:-1]
    plain = json.dumps(value, ensure_ascii=False)[1:-1]
    twice = json.dumps(once)[1:-1]
    return [once, plain, twice, once.replace("/", "\\/"), repr(value)[1:-1], html.escape(value)]


def _base64(raw: bytes) -> list[str]:
    """Its whole base64, and what of it shows inside a longer base64 text at any offset."""
    forms = [base64.b64encode(raw).decode()]
    for offset in range(3):
        text = base64.b64encode(b"\0" * offset + raw).decode()
        first = (0, 2, 3)[offset]  # characters that the bytes before it share
        rest = (offset + len(raw)) % 3
        inside = text[first : rest - 4] if rest else text[first:]
        if len(inside) >= 8:
            forms.append(inside)
    return [*forms, *(form.replace("+", "-").replace("/", "_").rstrip("=") for form in forms)]


class Redaction:
    """A fixed set of secrets, by value -> name."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._names: dict[str, str] = {}
        self._whole = {value: name for value, name in secrets.items() if value and len(value) < SHORTEST}
        for value, name in secrets.items():
            if len(value) >= SHORTEST:
                self._names.update((form, name) for form in spellings(value))
        forms = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(form) for form in forms)) if forms else None

    @property
    def is_empty(self) -> bool:
        return self._pattern is None and not self._whole

    def text(self, text: str) -> str:
        """`text` with `[secret NAME]` for every spelling of a secret in it."""
        if text in self._whole:
            return _mark(self._whole[text])
        if self._pattern is None or self.found(text) is None:
            return text
        return self._pattern.sub(lambda found: _mark(self._names[found[0]]), text)

    def found(self, text: str) -> str | None:
        """The name of a secret that stands in `text`, in any spelling."""
        if text in self._whole:
            return self._whole[text]
        # One search a form is many times faster than one pattern of all forms.
        return next((name for form, name in self._names.items() if form in text), None)

    def value(self, value: object) -> object:
        """A JSON value with all of its text redacted, names of fields too. The same object if nothing was."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            made = {self.text(str(name)): self.value(item) for name, item in value.items()}
            return value if made == value else made
        if isinstance(value, (list, tuple)):
            items = [self.value(item) for item in value]
            return value if items == list(value) else items
        return value

    def path(self, value: object, path: str = "$") -> tuple[str, str] | None:
        """(path, name) of the first secret in a JSON value, None if there is none."""
        todo: list[tuple[object, str]] = [(value, path)]
        while todo:
            value, path = todo.pop()
            if isinstance(value, str):
                if name := self.found(value):
                    return path, name
            elif isinstance(value, Mapping):
                if name := self._first_found(map(str, value)):
                    return path, name
                todo.extend((item, f"{path}.{key}") for key, item in value.items())
            elif isinstance(value, (list, tuple)):
                todo.extend((item, f"{path}[{n}]") for n, item in enumerate(value))
        return None

    def _first_found(self, texts: Iterable[str]) -> str | None:
        return next((name for text in texts if (name := self.found(text))), None)


def _mark(name: str) -> str:
    return f"[secret {name}]"
