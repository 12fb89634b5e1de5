"""Who shares a provider's limits: one organisation's calls to one provider, whichever lane or worker sends them."""

from dataclasses import dataclass

from runtime.model.tool import PacingRule


@dataclass(frozen=True, slots=True, kw_only=True)
class RateScope:
    """`rules` and `concurrency` are what the tool declares; a pacer adds its lane's defaults."""

    lane: str
    org_id: str
    provider: str
    max_batch_size: int = 1
    rules: tuple[PacingRule, ...] = ()
    concurrency: int | None = None
    is_fixture: bool = False  # no provider is reached: a line of its own

    @property
    def state_name(self) -> str:
        """Whose state it is, within the organisation."""
        return f"{self.provider}\0fixture" if self.is_fixture else self.provider


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePacing:
    """What a lane's table adds where its tools declare nothing."""

    groups: int = 8
    rules: tuple[PacingRule, ...] = ()
    concurrency: int | None = None
