"""What an exception says of itself. An author's own class may fail even at that, which must not fail those who ask."""


def said(error: BaseException) -> str:
    """The exception's text."""
    try:
        return str(error)
    except Exception as own:  # noqa: BLE001
        return f"(its __str__ raised {type(own).__name__})"


def named(error: BaseException) -> str:
    """The exception's type and text; the type alone if it says nothing."""
    return f"{type(error).__name__}: {said(error)}".removesuffix(": ")
