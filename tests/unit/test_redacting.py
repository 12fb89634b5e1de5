"""Secrets out of text, in every spelling."""

import base64
import html
import json
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import SecretTaintError
from runtime.known_secrets import ANY_ORG, KnownSecrets
from runtime.policy.redacting import Redaction

SECRET = 'sk/7f+ä"\\x&<9'


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"Bearer {SECRET}!",
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        urlencode({"key": SECRET}),
        json.dumps({"a": [SECRET]}),
        json.dumps({"a": SECRET}, ensure_ascii=False),
        json.dumps(json.dumps({"a": SECRET})),
        repr({"a": SECRET}),
        html.escape(SECRET),
        SECRET.encode().hex(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        *(base64.b64encode(b"u:xx"[:n] + SECRET.encode() + b"tail").decode() for n in range(5)),
    ],
)
def test_every_spelling_goes(text: str) -> None:
    redaction = Redaction({SECRET: "KEY"})
    assert redaction.found(text) == "KEY"
    assert "[secret KEY]" in redaction.text(text)
    assert redaction.found(redaction.text(text)) is None


@given(st.text(min_size=6, max_size=40), st.binary(max_size=7), st.binary(max_size=7))
def test_inside_base64_at_any_place(secret: str, before: bytes, after: bytes) -> None:
    raw = secret.encode("utf-8", "surrogatepass")
    if len(raw) < 9:
        return
    redaction = Redaction({secret: "KEY"})
    assert redaction.found(base64.b64encode(before + raw + after).decode()) == "KEY"
    assert redaction.found(base64.urlsafe_b64encode(before + raw + after).decode()) == "KEY"


def test_a_short_secret_is_known_as_a_whole_only() -> None:
    redaction = Redaction({"abc": "PIN"})
    assert redaction.text("abc") == "[secret PIN]"
    assert redaction.text("xabcx") == "xabcx"


def test_values_and_paths() -> None:
    redaction = Redaction({"s3cr3t-v": "KEY"})
    value = {"a": [{"b": "x s3cr3t-v y"}], "c": 1}
    assert redaction.value(value) == {"a": [{"b": "x [secret KEY] y"}], "c": 1}
    assert redaction.path(value) == ("$.a[0].b", "KEY")
    clean = {"a": [1, "b"]}
    assert redaction.value(clean) is clean
    assert redaction.path(clean) is None


def test_an_organisation_is_not_bothered_by_the_secrets_of_another() -> None:
    known = KnownSecrets()
    known.add("one", "KEY", "acme-acme")
    known.refuse({"name": "acme-acme"}, "two", "a cell")
    with pytest.raises(SecretTaintError, match=r'a cell holds the secret "KEY" at \$\.name'):
        known.refuse({"name": "acme-acme"}, "one", "a cell")
    with pytest.raises(SecretTaintError, match=r"\$\.n\[1\]"):
        known.refuse_json(b'{"n": ["a", "acme-acme"]}', "one", "a cell")
    assert known.redacted("acme-acme") == "[secret KEY]"
    known.add(ANY_ORG, "TOKEN", "the-api-token-x")
    assert known.redacted("at the-api-token-x!") == "at [secret TOKEN]!"


def test_the_oldest_are_forgotten_at_the_bound() -> None:
    known = KnownSecrets(most=2)
    for n in range(3):
        known.add("org", f"S{n}", f"secret-value-{n}")
    assert known.redacted("secret-value-0") == "secret-value-0"
    assert known.redacted("secret-value-2") == "[secret S2]"


def test_what_is_met_again_and_the_processes_own_outlive_the_bound() -> None:
    known = KnownSecrets(most=2)
    known.add(ANY_ORG, "PASSWORD", "own-password")
    known.add("a", "FIRST", "first-value")
    for name in ("second", "third"):
        known.add("a", name.upper(), f"{name}-value")
        known.add("a", "FIRST", "first-value")
    assert "own-password" not in known.redacted("own-password")
    known = KnownSecrets(most=3)
    for name in ("first", "second", "third", "first", "fourth"):
        known.add("a", name.upper(), f"{name}-value")
    assert "first-value" not in known.redacted("first-value")
    assert known.redacted("second-value") == "second-value"
