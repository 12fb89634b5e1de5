"""`ctx` works in the thread of its process's loop: asked elsewhere it would wait for answers that never reach it."""

from threading import get_ident

from runtime.errors import PlayDefinitionError


def refuse_other_thread(home: int, where: str) -> None:
    """Raise unless this is thread `home`."""
    if get_ident() != home:
        raise PlayDefinitionError(
            f"{where}: ctx was used in a thread of the play's own (asyncio.to_thread, an executor, asyncio.run): "
            "await it outside, and give the thread what it gave"
        )
