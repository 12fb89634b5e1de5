"""Work that meets a defect of its play's values or of ours meets it again: it is not tried for ever."""

from runtime.errors import DefectError, JsonValueError, ValueRefusedError
from runtime.model.error_text import named
from runtime.policy.limits import DEFAULT_LIMITS

_DEFECTS = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    JsonValueError,
    ValueRefusedError,
)


class Defects:
    """How often each piece of work met one in this process since it last went well; used by several threads."""

    def __init__(self, most: int, works: int = DEFAULT_LIMITS.defect_works) -> None:
        self._most = most
        self._works = works
        self._met: dict[str, int] = {}

    def met(self, work: str, what: str, error: BaseException) -> DefectError | None:
        """The error that ends the run, if this was the last time; None: it may be tried again."""
        if not isinstance(error, _DEFECTS):
            return None
        count = self._met.pop(work, 0) + 1
        if count >= self._most:
            return DefectError(
                f"{what} can't be run: {named(error)[:500]} ({count} times in a row); the run ends here. Finished rows "
                "and receipts are kept. The workers' logs have the whole trace: mend the play if the line is its own"
            )
        self._met[work] = count
        while len(self._met) > self._works:
            self._met.pop(next(iter(self._met)), None)
        return None

    def passed(self, work: str) -> None:
        """It went well."""
        self._met.pop(work, None)
