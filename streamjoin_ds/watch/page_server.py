"""The page: its files, and ``/facts``, which its script asks for again and again.

At an address that only this machine reaches a request must name it as such, so that no page of the web that a browser
shows can ask (DNS rebinding). Anywhere else it must bring the token: once in the URL, then in a cookie.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from streamjoin_ds.errors import DependencyMissingError
from streamjoin_ds.watch.address import Listener
from streamjoin_ds.watch.watched_join import WatchedJoin

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["check_page", "page_app", "page_server"]

_COOKIE = "streamjoin_page_token"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_LOOK_S = 0.5  # between two looks whether the server is to end
_KINDS = {"css": "text/css", "html": "text/html", "js": "text/javascript", "json": "application/json"}


def check_page() -> None:
    """Refuse a page where its server is not installed.

    Raises
    ------
    DependencyMissingError
    """
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        msg = "a page needs the packages starlette and uvicorn"
        raise DependencyMissingError(msg, name="page", hint="pip install 'streamjoin-ds[page]'")


def page_app(join: WatchedJoin, token: str = "") -> Starlette:
    """Return the application that serves the page of a join.

    Parameters
    ----------
    join : WatchedJoin
    token : str
        What requests must bring; empty: they come from this machine.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import MutableHeaders
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response
    from starlette.routing import Route

    folder = files("streamjoin_ds.watch") / "page"
    shown = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _KINDS}

    def told(after: int, seen: str) -> bytes:
        join.poll()
        return join.told(after, seen)

    async def facts(request: Request) -> Response:
        after = request.query_params.get("after", "0")
        number = int(after) if after.isascii() and after.isdecimal() and len(after) < 16 else 0
        text = await run_in_threadpool(told, number, request.query_params.get("seen", ""))
        return Response(text, media_type="application/json")

    async def file(request: Request) -> Response:
        name = request.path_params.get("name") or "index.html"
        if name not in shown:
            return PlainTextResponse("there is no such file", 404)
        return Response(shown[name], media_type=_KINDS[name.rpartition(".")[2]])

    # Not by starlette's BaseHTTPMiddleware, which makes a group of tasks for each request.
    class Guarded:
        def __init__(self, app: ASGIApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            request, answer = Request(scope), self.app
            if token and _is(request.query_params.get("token", ""), token):
                answer = redirected = RedirectResponse(request.url.path, 303)
                redirected.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
            elif token and not _is(request.cookies.get(_COOKIE, ""), token):
                answer = PlainTextResponse("open the page by the URL that the command has printed, with its token", 401)

            async def with_headers(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message).update(_HEADERS)
                await send(message)

            await answer(scope, receive, with_headers)

    middleware = [Middleware(Guarded)]
    if not token:
        hosts = ["localhost", "127.0.0.1"]
        middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False))
    routes = [Route("/", file), Route("/facts", facts), Route("/{name}", file)]
    return Starlette(routes=routes, middleware=middleware)


def _is(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def page_server(join: WatchedJoin, listener: Listener) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return two functions: one serves the page until it is to end, and the other one says that it is.

    Raises
    ------
    DependencyMissingError
    """
    check_page()
    import uvicorn

    app = page_app(join, listener.token)
    settings = uvicorn.Config(
        app, log_level="error", access_log=False, lifespan="off", timeout_graceful_shutdown=1, server_header=False
    )

    class Server(uvicorn.Server):
        async def main_loop(self) -> None:
            # uvicorn looks ten times a second whether it is to end, which takes as long as the page's requests.
            while not await self.on_tick(0):
                await asyncio.sleep(_LOOK_S)

    server = Server(settings)

    def end() -> None:
        server.should_exit = True

    return lambda: server.run(sockets=[listener.socket]), end
