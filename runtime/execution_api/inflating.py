"""Packed bodies unpacked as they come: gzip of any number of members, or deflate."""

import zlib

from runtime.errors import FetchFailedError

_EITHER = zlib.MAX_WBITS | 32
_GZIP = zlib.MAX_WBITS | 16


class Inflating:
    """`take` unpacks no more at once than is asked for; what is left of its input is `left`. `whose`: for messages."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._member = zlib.decompressobj(_EITHER)
        self._is_first = True
        self._gave = False
        self.left = b""

    @property
    def is_whole(self) -> bool:
        """Whether the last member that began has ended."""
        return self._member.eof

    def take(self, part: bytes, most: int) -> bytes:
        """At most `most` unpacked bytes; raises zlib.error, and FetchFailedError for what is no member."""
        if self._member.eof:
            part = part.lstrip(b"\0")  # padding
            if not part:
                self.left = b""
                return b""
            self._member, self._is_first, self._gave = zlib.decompressobj(_GZIP), False, False
        try:
            data = self._member.decompress(part, most)
        except zlib.error as error:
            if self._is_first or self._gave:
                raise
            raise FetchFailedError(
                f"no whole answer from {self._whose}: its packed body ends, and something else that isn't gzip "
                "follows: pack the file anew"
            ) from error
        self._gave = self._gave or bool(data)
        self.left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return data
