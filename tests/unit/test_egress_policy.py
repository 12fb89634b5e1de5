"""Which URLs and addresses a fetch may reach."""

import pytest

from runtime.policy.egress import (
    AllowedHost,
    address_refusal,
    allowed_hosts,
    host_refusal,
    is_allowed,
    url_refusal,
)

INSIDE = (
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::8.8.8.8",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::1",
    "2001:0:7f00:1::1",
    "2001:db8::1",
    "100::1",
)


@pytest.mark.parametrize("address", INSIDE)
def test_addresses_that_are_not_public(address: str) -> None:
    assert address_refusal(address)
    host = f"[{address}]" if ":" in address else address
    assert url_refusal("http", host.partition("%")[0] + ("]" if "%" in host else ""), has_credentials=False)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "193.0.6.139"])
def test_public_addresses(address: str) -> None:
    assert address_refusal(address) is None


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.1",
        "0300.0250.1.1",
        "1.2.3.4.",
        "134744072",
        "1.2.3.0x4",
        "",
        "a..b",
        "-a.example",
        "a b.example",
        "a" * 64 + ".example",
        "ex%61mple.com",
        "[::1",
    ],
)
def test_hosts_in_odd_forms(host: str) -> None:
    assert host_refusal(host)


@pytest.mark.parametrize(
    "host", ["example.com", "EXAMPLE.com.", "xn--bcher-kva.example", "a_b.example", "localhost"]
)
def test_names_are_left_to_the_look_up(host: str) -> None:
    assert host_refusal(host) is None


@pytest.mark.parametrize("scheme", ["file", "gopher", "ftp", "ws", "", "javascript"])
def test_other_schemes(scheme: str) -> None:
    assert url_refusal(scheme, "example.com", has_credentials=False)


def test_credentials_in_a_url() -> None:
    refusal = url_refusal("https", "example.com", has_credentials=True)
    assert refusal is not None
    assert "ctx.secrets" in refusal


def test_what_an_operator_named() -> None:
    allowed = allowed_hosts(("127.0.0.1:8080", "intra.example", "[::1]:9", "::1"[:0] + "LOCALhost:80"))
    assert allowed[1] == AllowedHost(host="intra.example")
    assert is_allowed("127.0.0.1", 8080, allowed)
    assert not is_allowed("127.0.0.1", 8081, allowed)
    assert is_allowed("INTRA.example", 1234, allowed)
    assert is_allowed("::1", 9, allowed)
    assert is_allowed("localhost", 80, allowed)
    for bad in ("", ":80", "host:port", "host:0", "host:99999"):
        with pytest.raises(ValueError):
            allowed_hosts((bad,))
