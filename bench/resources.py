"""What processes take of the machine, as /proc tells it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True, kw_only=True)
class Resources:
    """The most memory (bytes) and the processor time (s) of processes while they were looked at."""

    pids: Mapping[str, int]
    rss: dict[str, int] = field(default_factory=dict)
    began_cpu_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """One look at each; a machine without /proc gives nothing."""
        for name, pid in self.pids.items():
            folder = Path(f"/proc/{pid}")
            if not folder.exists():
                continue
            rss = int((folder / "statm").read_text().split()[1]) * _PAGE
            self.rss[name] = max(self.rss.get(name, 0), rss)
            ticks = (folder / "stat").read_text().rpartition(")")[2].split()
            cpu_s = (int(ticks[11]) + int(ticks[12])) / _TICKS
            self.cpu_s[name] = cpu_s - self.began_cpu_s.setdefault(name, cpu_s)

    def told(self) -> str:
        """Memory and processor time of each, in words."""
        return ", ".join(
            f"{name} {self.rss[name] / MIB:.0f} MiB {self.cpu_s[name]:.1f} s" for name in sorted(self.rss)
        )
