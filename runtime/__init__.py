"""What an author of plays imports."""

from typing import TYPE_CHECKING, Any

from runtime.play import play

if TYPE_CHECKING:
    from runtime.context.steps import run_if, steps, waterfall

__all__ = ["play", "run_if", "steps", "waterfall"]


def __getattr__(name: str) -> Any:
    """Step programs are loaded where they are used: a client of plays needs none of them."""
    if name in __all__:
        from runtime.context import steps as programs

        return getattr(programs, name)
    raise AttributeError(f"module 'runtime' has no attribute {name!r}")
