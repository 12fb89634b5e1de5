"""`ctx.secrets`: names of secrets in a play; their values appear only where a request is sent."""

import re
from collections.abc import Awaitable, Callable, Generator
from typing import Any, NoReturn

from runtime.errors import PlayDefinitionError, SecretTaintError
from runtime.model.fetch import SecretHeader

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class SecretHandle:
    """A secret by its name. `await` gives its value, as text, for the body of a request."""

    __slots__ = ("_value", "name")
    not_json = (
        "a secret is never stored or sent as data: use it by ctx.fetch(..., auth=ctx.secrets.bearer(...)), or "
        "await it and put its value into the body of a fetch"
    )

    def __init__(self, name: str, value: Callable[[str], Awaitable[str]]) -> None:
        self.name = name
        self._value = value

    def __await__(self) -> Generator[Any, None, str]:
        return self._value(self.name).__await__()

    def __repr__(self) -> str:
        return f"[secret {self.name}]"

    def __format__(self, spec: str) -> str:
        raise SecretTaintError(
            f'the secret "{self.name}" was put into text without its value: await ctx.secrets.get("{self.name}") '
            "first if the text is the body of a fetch"
        )

    def __reduce__(self) -> NoReturn:
        raise SecretTaintError(f'the secret "{self.name}" can\'t be copied out of its process')


class SecretAuth:
    """What `ctx.fetch(..., auth=)` takes: a header that is filled in when the request is sent."""

    __slots__ = ("header",)
    not_json = SecretHandle.not_json

    def __init__(self, header: SecretHeader) -> None:
        self.header = header

    def __repr__(self) -> str:
        return f"{self.header.header}: {self.header.marker}"

    def __reduce__(self) -> NoReturn:
        raise SecretTaintError(f"{self!r} can't be copied out of its process")


class Secrets:
    """`ctx.secrets`."""

    def __init__(self, value: Callable[[str], Awaitable[str]]) -> None:
        self._value = value

    def get(self, name: str) -> SecretHandle:
        """The secret of that name; await it for its value."""
        return SecretHandle(_checked(name, "ctx.secrets.get"), self._value)

    def bearer(self, secret: str | SecretHandle) -> SecretAuth:
        """`authorization: Bearer …`."""
        return self._auth(secret, "authorization", "Bearer ", "ctx.secrets.bearer")

    def basic(self, user: str, secret: str | SecretHandle) -> SecretAuth:
        """`authorization: Basic …` of a user name and a secret password."""
        if not isinstance(user, str) or ":" in user:
            raise PlayDefinitionError("ctx.secrets.basic: user is a user name, text without a colon")
        return self._auth(secret, "authorization", "Basic ", "ctx.secrets.basic", user)

    def header(self, secret: str | SecretHandle, header: str, *, prefix: str = "") -> SecretAuth:
        """A header of that name whose value is `prefix` and the secret."""
        if not isinstance(header, str) or not _HEADER.fullmatch(header):
            raise PlayDefinitionError(
                f'ctx.secrets.header: header is the name of an HTTP header such as "x-api-key", not {header!r:.80}'
            )
        if not isinstance(prefix, str) or not prefix.isprintable() or not prefix.isascii():
            raise PlayDefinitionError(
                'ctx.secrets.header: prefix is text of plain ASCII such as "Token ", which stands before the secret'
            )
        return self._auth(secret, header.lower(), prefix, "ctx.secrets.header")

    def _auth(
        self, secret: str | SecretHandle, header: str, prefix: str, where: str, user: str | None = None
    ) -> SecretAuth:
        name = secret.name if isinstance(secret, SecretHandle) else _checked(secret, where)
        return SecretAuth(SecretHeader(header=header, secret=name, prefix=prefix, user=user))


def _checked(name: Any, where: str) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        # What was given is not shown: it may be a secret's value.
        raise PlayDefinitionError(
            f'{where} takes the name of a secret such as "ACME_API_KEY" (letters, digits, "_", "." and "-", at most '
            "100), not its value"
        )
    return name
