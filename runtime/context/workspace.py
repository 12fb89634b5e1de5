"""The folders that plays may read files of."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from runtime.errors import CsvError

WORKSPACE_VARIABLE = "PLAYLANE_WORKSPACE"
DOWNLOADS = Path(".playlane") / "downloads"
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Relative paths lie in the first folder. Links are followed before it is judged where a file lies."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, folders: tuple[str, ...]) -> "Workspace":
        """From folders as they were named; none: where the process was started."""
        return cls(
            roots=tuple(Path(folder).expanduser().resolve() for folder in folders) or (Path.cwd().resolve(),)
        )

    def locate(self, asked: str) -> Path:
        """The file of that path; raises CsvError if it isn't there, is hidden or lies outside."""
        try:
            path = (self.roots[0] / Path(asked).expanduser()).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise CsvError(f"{asked:.200} is no path of a file ({error}); no tool was called") from error
        if not any(path.is_relative_to(root) for root in self.roots):
            raise CsvError(
                f"{asked:.200} lies outside the workspace ({self.shown()}), so it isn't read; no tool was called: "
                f"put the file there, or name its folder in {WORKSPACE_VARIABLE} of the play workers"
            )
        if self._is_hidden(path) or path.suffix == ".env":
            raise CsvError(
                f"{asked:.200} is a hidden or settings file, so it isn't read as CSV; no tool was called"
            )
        if not path.is_file():
            known = list(islice(self._names(), _NAMES_SHOWN))
            raise CsvError(
                f"there is no file {asked:.200} in the workspace ({self.shown()}), so it can't be read; no tool was "
                f"called. Its CSV files: {', '.join(known) or 'none'}"
            )
        return path

    def _is_hidden(self, path: Path) -> bool:
        """In every root that it lies in: a root may itself lie in a hidden folder."""
        inside = [path.relative_to(root) for root in self.roots if path.is_relative_to(root)]
        return all(any(part.startswith(".") for part in one.parts) for one in inside)

    def download(self, run_id: str, name: str) -> Path:
        """Where a file that a run fetched is kept."""
        return self.roots[0] / DOWNLOADS / run_id / name

    @property
    def downloads(self) -> Path:
        return self.roots[0] / DOWNLOADS

    def shown(self) -> str:
        return ", ".join(str(root) for root in self.roots)

    def _names(self) -> Iterator[str]:
        for root in self.roots:
            yield from sorted(path.name for path in root.glob("*.csv"))
