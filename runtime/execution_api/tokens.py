"""Tokens of the execution API: one for every org, and the check that one may travel in a header."""

import re
from dataclasses import dataclass, field

from runtime.errors import ExecuteFailedError
from runtime.execution_api import failures
from runtime.model.failure import FailureClass
from runtime.ports import TokenSource

_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTokenSource:
    value: str = field(repr=False)

    async def token(self, org_id: str) -> str:
        return self.value


async def usable_token(source: TokenSource, org_id: str, operation: str) -> str:
    """The org's token; ExecuteFailedError (AUTH) names the org if no header may carry it."""
    token = await source.token(org_id)
    if not _TOKEN.fullmatch(token):
        what = f"the token of organisation {org_id} is empty or holds characters that no header may carry"
        raise ExecuteFailedError(failures.plain(operation, FailureClass.AUTH, what))
    return token
