"""The secret values that this process has met: kept out of what is stored, sent, logged or shown."""

import threading
from collections import OrderedDict
from typing import Any

from runtime.errors import SecretTaintError
from runtime.model import json_value
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.redacting import Redaction

ANY_ORG = ""
"""Secrets of the process itself: blackened everywhere, refused nowhere."""

_NONE = Redaction({})


class KnownSecrets:
    """By organisation: what one knows must not touch the data of another.

    Beyond the bound those that were not met again for longest are forgotten, never the process's own.
    """

    def __init__(self, most: int = DEFAULT_LIMITS.secrets_known) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._by_org: dict[str, Redaction] = {}
        self._all = _NONE

    def add(self, org_id: str, name: str, value: str) -> None:
        """From now on `value` is a secret of the organisation."""
        key = (org_id, value)
        if not value:
            return
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return
            self._values[key] = name
            if len(self._values) > self._most and (oldest := self._oldest()) is not None:
                del self._values[oldest]
            self._rebuild()

    def _oldest(self) -> tuple[str, str] | None:
        return next((key for key in self._values if key[0] != ANY_ORG), None)

    def forget(self, org_id: str) -> None:
        """The organisation is gone, as one made for a test is."""
        with self._lock:
            for key in [key for key in self._values if key[0] == org_id]:
                del self._values[key]
            self._rebuild()

    def _rebuild(self) -> None:
        by_org: dict[str, dict[str, str]] = {}
        for (owner, value), name in self._values.items():
            by_org.setdefault(owner, {})[value] = name
        self._by_org = {owner: Redaction(values) for owner, values in by_org.items()}
        self._all = Redaction({value: name for (_, value), name in self._values.items()})

    def of(self, org_id: str) -> Redaction:
        """What is known of one organisation."""
        return self._by_org.get(org_id, _NONE)

    def redacted(self, text: str) -> str:
        """`text` without the secrets of anybody."""
        return text if self._all.is_empty else self._all.text(text)

    def redacted_value(self, value: Any) -> Any:
        """A JSON value without the secrets of anybody."""
        return value if self._all.is_empty else self._all.value(value)

    def refuse(self, value: Any, org_id: str, where: str, path: str = "$") -> None:
        """Raise SecretTaintError if a JSON value holds a secret of the organisation."""
        known = self._by_org.get(org_id)
        if known is None or known.is_empty:
            return
        hit = known.path(value, path)
        if hit is not None:
            at, name = hit
            raise SecretTaintError(
                f'{where} holds the secret "{name}" at {at}: what is stored, sent as data or shown never does. '
                "Give it to ctx.fetch by auth=ctx.secrets.bearer(...) or .header(...), and leave it out here; "
                "not tried again"
            )

    def refuse_json(self, data: bytes, org_id: str, where: str) -> None:
        """The same for JSON text."""
        known = self._by_org.get(org_id)
        if known is not None and not known.is_empty and known.found(data.decode("utf-8", "replace")):
            self.refuse(json_value.loads(data), org_id, where)


known_secrets = KnownSecrets()
