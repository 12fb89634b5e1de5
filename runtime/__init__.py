"""What an author of plays imports."""

from runtime.play import play

__all__ = ["play"]
