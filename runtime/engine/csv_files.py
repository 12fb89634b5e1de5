"""Finds, fetches and scans the CSV that a body asks for."""

import asyncio
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from runtime.context.csv_asking import is_url
from runtime.context.csv_rows import CsvHandle, scan_csv
from runtime.context.workspace import Workspace
from runtime.errors import CsvError, EgressRefusedError, FetchFailedError
from runtime.policy.limits import Limits

OpenUrl = Callable[[str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""The body of a good answer, as it comes; raises a PlaylaneError where the URL is refused or doesn't answer."""


class CsvFiles:
    """A URL is fetched once into the run's folder of the workspace, and again on another machine or when it is gone."""

    def __init__(self, workspace: Workspace, limits: Limits, *, open_url: OpenUrl | None = None) -> None:
        self._workspace = workspace
        self._limits = limits
        self._open_url = open_url

    async def scan(self, run_id: str, args: dict[str, Any]) -> dict[str, Any]:
        """The handle's JSON for the journal; raises CsvError for the first thing that is wrong."""
        path, shown, content = args["path"], args["shown"], args["content"]
        file: str | None = None
        if content is None and is_url(path):
            file = str(await self._fetched(run_id, path, shown))
        elif content is None:
            file = str(await asyncio.to_thread(self._workspace.locate, path))
        handle = await asyncio.to_thread(
            scan_csv,
            shown,
            self._limits,
            file=file,
            content=content,
            projection=args["projection"],
            delimiter=args.get("delimiter"),
        )
        return {**handle.to_json(), **({"file": file} if file else {})}

    async def ready(self, run_id: str, handle: CsvHandle) -> CsvHandle:
        """The handle with its file on this machine."""
        if handle.url is None:
            return handle
        return replace(handle, file=str(await self._fetched(run_id, handle.url, handle.path)))

    async def _fetched(self, run_id: str, url: str, shown: str) -> Path:
        name = f"{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.csv"
        path = self._workspace.download(run_id, name)
        if not await asyncio.to_thread(path.is_file):
            try:
                await asyncio.to_thread(self._make_room, path.parent)
                await self._fetch(url, shown, path)
            except OSError as error:
                raise CsvError(
                    f"{shown} can't be kept in {path.parent} ({error.strerror}); no tool was called: let the play "
                    "workers write there"
                ) from error
        return path

    async def _fetch(self, url: str, shown: str, path: Path) -> None:
        if self._open_url is None:
            raise CsvError(f"{shown} can't be fetched: this process has no way out; no tool was called")
        part = path.with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            with await asyncio.to_thread(part.open, "wb") as file:
                async with asyncio.timeout(self._limits.csv_url_s):
                    await self._copy(url, shown, file)
            await asyncio.to_thread(os.replace, part, path)
        except TimeoutError:
            raise CsvError(
                f"{shown} was not there within {self._limits.csv_url_s:g} s; no tool was called"
            ) from None
        finally:
            part.unlink(missing_ok=True)

    async def _copy(self, url: str, shown: str, file: BinaryIO) -> None:
        assert self._open_url is not None
        size, most = 0, self._limits.csv_url_bytes
        try:
            async with self._open_url(url) as parts:
                async for data in parts:
                    size += len(data)
                    if size > most:
                        raise CsvError(
                            f"{shown} is larger than {most:,} bytes; no tool was called: split the file"
                        )
                    await asyncio.to_thread(file.write, data)
        except (FetchFailedError, EgressRefusedError) as error:
            raise CsvError(f"{shown} can't be fetched: {error}; no tool was called") from error

    def _make_room(self, folder: Path) -> None:
        """What runs of long ago fetched goes when something new comes."""
        oldest_s = time.time() - self._limits.csv_url_keep_s
        downloads = self._workspace.downloads
        for old in downloads.iterdir() if downloads.is_dir() else ():
            with suppress(FileNotFoundError):  # another process makes room, too
                if old.stat().st_mtime < oldest_s:
                    shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
