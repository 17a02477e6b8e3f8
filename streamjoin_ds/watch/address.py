"""Where a page or an endpoint listens: an address as a text, its socket, and who may come."""

from __future__ import annotations

import errno
import ipaddress
import os
import secrets
import socket
import time
from collections.abc import Callable
from urllib.parse import quote

from msgspec import Struct

from streamjoin_ds.errors import ArgumentError

__all__ = ["METRICS_ADDRESS", "PAGE_ADDRESS", "TOKEN_VARIABLE", "Address", "Listener"]

TOKEN_VARIABLE = "STREAMJOIN_DS_PAGE_TOKEN"
"""The environment variable with the token of pages that other machines may open."""

PAGE_ADDRESS, METRICS_ADDRESS = "127.0.0.1:8765", "127.0.0.1:9464"
"""Where a page and an endpoint for Prometheus are, if they are wanted and nobody says where."""

_LOOPBACK = "127.0.0.1"
_PATIENCE_S = 8.0  # for an address in use: the page of a query that was just stopped goes within that time
_PAUSE_S = 0.1
_BACKLOG = 64  # connections that wait


class Address(Struct, frozen=True):
    """An address to listen at.

    Parameters
    ----------
    host : str
        An IP address.
    port : int
        0: any that is free.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, name: str) -> Address:
        """Return the address of ``PORT`` (of this machine alone), ``HOST:PORT`` or ``[IPv6]:PORT``.

        Raises
        ------
        ArgumentError
            The text has another form; the error has the option's `name`.
        """
        host, _, port = text.strip().rpartition(":")
        host = "127.0.0.1" if host in ("", "localhost") else host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.ip_address(host)
            number = int(port) if port.isascii() and port.isdecimal() else -1
        except ValueError:
            number = -1
        if not 0 <= number <= 65_535:
            msg = f"{name} is no address to listen at"
            raise ArgumentError(msg, name=name, hint=f"give a port, or an IP address and a port: {_LOOPBACK}:8765")
        return cls(host, number)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return ipaddress.ip_address(self.host).is_loopback


class Listener(Struct):
    """A socket that listens at an address.

    Parameters
    ----------
    socket : socket.socket
    address : Address
        With the port that it has.
    token : str
        What a browser must bring; empty at an address that only this machine reaches.
    """

    socket: socket.socket
    address: Address
    token: str = ""

    @classmethod
    def at(
        cls,
        address: Address,
        name: str,
        *,
        has_token: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> Listener:
        """Listen at an address; wait some seconds where it is in use.

        Raises
        ------
        ArgumentError
            The address is in use, is none of this machine, or must not be taken; the error has the option's `name`.
        """
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        until_s = clock() + _PATIENCE_S
        while True:
            listening = socket.socket(family, socket.SOCK_STREAM)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listening.bind((address.host, address.port))
                listening.listen(_BACKLOG)
                break
            except OSError as error:
                listening.close()
                is_used = error.errno == errno.EADDRINUSE
                if is_used and clock() < until_s:
                    wait(_PAUSE_S)
                    continue
                msg = f"nobody can listen at {address.host}:{address.port}: {error.strerror}"
                hint = "give another port" if is_used else f"give an address of this machine: {_LOOPBACK}:8765"
                raise ArgumentError(msg, name=name, hint=hint) from None
        token = ""
        if has_token and not address.is_loopback:
            token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
        return cls(listening, Address(address.host, listening.getsockname()[1]), token)

    def url(self, path: str = "/") -> str:
        """Return where a browser finds it."""
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        host = socket.gethostname() if ipaddress.ip_address(self.address.host).is_unspecified else host
        return f"http://{host}:{self.address.port}{path}{f'?token={quote(self.token)}' if self.token else ''}"

    def told(self, name: str) -> str:
        """Return the line that says where it is, without a token of the environment: others read what is printed."""
        url = self.url("/metrics" if name == "metrics" else "/")
        is_given = self.token and self.token == os.environ.get(TOKEN_VARIABLE)
        return f"{name}: {url.replace(quote(self.token), f'${TOKEN_VARIABLE}') if is_given else url}"

    def close(self) -> None:
        """Listen no more."""
        self.socket.close()
