"""Which addresses of the network a fetch may reach: public ones, and what an operator named. Pure.

A refusal is final: asking again, or asking another provider, would not make the address a public one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

SCHEMES = {"http": 80, "https": 443}

_GLOBAL_V6 = IPv6Network("2000::/3")
_CARRIES_V4 = (
    IPv6Network("2001::/32"),  # Teredo
    IPv6Network("2002::/16"),  # 6to4
    IPv6Network("64:ff9b::/96"),  # NAT64
    IPv6Network("64:ff9b:1::/48"),
    IPv6Network("::ffff:0:0/96"),  # v4-mapped
    IPv6Network("::/96"),
)
_RELAY_V4 = IPv4Network("192.88.99.0/24")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHost:
    """A host that an operator lets fetches reach although it isn't public; any port where none is named."""

    host: str
    port: int | None = None


def allowed_hosts(entries: Sequence[str]) -> tuple[AllowedHost, ...]:
    """From `host` or `host:port` entries; ValueError names a bad one."""
    return tuple(_allowed(entry) for entry in entries)


def _allowed(entry: str) -> AllowedHost:
    host, colon, port = entry.strip().lower().rpartition(":")
    if not colon or entry.strip().endswith("]"):
        host, port = entry.strip().lower(), ""
    if not host or (colon and port and not port.isdecimal()) or (port and not 0 < int(port) < 65_536):
        raise ValueError(f"{entry!r} is no host or host:port")
    return AllowedHost(host=host.strip("[]"), port=int(port) if port else None)


def is_allowed(host: str, port: int, allowed: Sequence[AllowedHost]) -> bool:
    """Whether an operator named this host (as it is written in the URL)."""
    name = host.lower().strip("[]")
    return any(one.host == name and one.port in (None, port) for one in allowed)


def url_refusal(scheme: str, host: str, *, has_credentials: bool) -> str | None:
    """Why this URL is never fetched, whatever its host resolves to; None if that must be looked at."""
    if scheme not in SCHEMES:
        return f"its scheme is {scheme or 'missing'}, not http or https"
    if has_credentials:
        return "it carries credentials: give them by auth=ctx.secrets.bearer(...) or ctx.secrets.header(...)"
    return host_refusal(host)


def host_refusal(host: str) -> str | None:
    """Why a host can't be looked up, or is an address that isn't public. None: a name, to be resolved."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare:
        return "it names no host"
    if ":" in bare or _is_dotted_quad(bare):
        return address_refusal(bare)
    labels = bare.lower().removesuffix(".").split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return "its host is an address in a form that programs read differently: write a.b.c.d"
    if len(bare) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return "its host is no name that can be looked up"
    return None


def address_refusal(address: str) -> str | None:
    """Why this address isn't connected to; None if it is public."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return "its host is no address"
    if isinstance(ip, IPv6Address):
        is_public = ip in _GLOBAL_V6 and ip.is_global and not any(ip in network for network in _CARRIES_V4)
    else:
        is_public = ip.is_global and not ip.is_multicast and ip not in _RELAY_V4
    if is_public:
        return None
    return (
        "its address is not public (private, loopback, link-local, multicast, reserved or carrying another)"
    )


def _is_dotted_quad(host: str) -> bool:
    try:
        IPv4Address(host)
    except AddressValueError:
        return False
    return True
