"""A token source of one token for every org."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTokenSource:
    value: str = field(repr=False)

    async def token(self, org_id: str) -> str:
        return self.value
