"""`attnsweep serve`: the report in a browser on this machine, made again while its sweeps go on."""

import hmac
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from attnsweep.orchestrator.report.page import make_report
from attnsweep.orchestrator.report.watching import changes
from attnsweep.orchestrator.storage.location import Location
from attnsweep.workloads.errors import UserError

LOOPBACK = "127.0.0.1"
_SECONDS_FOR_A_REQUEST = 30
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Type": "text/html; charset=utf-8",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_Answer: TypeAlias = tuple[HTTPStatus, str, dict[str, str]]
"""The status, the page and further headers."""


@dataclass
class ServedReport:
    """The report, and who may read it.

    Attributes:
        page: The newest one, as HTML.
        token: In the URL that the user is told. It is exchanged for the cookie, so that it stays out of the address
            bar.
        session: The value of the cookie.
    """

    page: str
    token: str = field(default_factory=secrets.token_urlsafe)
    session: str = field(default_factory=secrets.token_urlsafe)

    def answer(self, target: str, host: str, cookies: str, port: int) -> _Answer:
        """The answer to a GET.

        Args:
            target: The path with its query.
            host, cookies: The headers of these names.
            port: The server's port.
        """
        # Another name is another site's, which resolves it to this machine.
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return HTTPStatus.FORBIDDEN, "Open the address that attnsweep serve has printed.", {}
        parts = urlsplit(target)
        if parts.path != "/":
            return HTTPStatus.NOT_FOUND, "There is one page, at /.", {}
        # Cookies do not tell ports apart: each server has its own.
        name = f"attnsweep-{port}"
        if any(_same(given, self.token) for given in parse_qs(parts.query).get("token", ())):
            cookie = f"{name}={self.session}; HttpOnly; SameSite=Strict; Path=/"
            return HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie}
        if not _same(_cookie(cookies, name), self.session):
            return HTTPStatus.FORBIDDEN, "Open the address that attnsweep serve has printed, with its token.", {}
        return HTTPStatus.OK, self.page, {}


def serve_report(directories: Sequence[Location], port: int, told: Callable[[str], None]) -> None:
    """Serves the report on the loopback interface until interrupted, and makes it again whenever a ledger has changed.

    Args:
        directories: At least one.
        port: Where to listen; 0 is any free port.
        told: Called with the URL once it answers.

    Raises:
        UserError: As `make_report`, or for a port that is taken.
    """
    ended = threading.Event()
    looks = changes(directories, ended)
    next(looks)
    served = ServedReport(make_report(directories)[0])
    with _listening(served, port) as url:
        told(url)
        for _ in looks:
            served.page, _ = make_report(directories)


@contextmanager
def _listening(served: ServedReport, port: int) -> Iterator[str]:
    """Answers in other threads; yields the URL with the token."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), _handler(served))
    except OSError as error:
        raise UserError(
            "--port", given=port, expected=f"a port that is free ({error.strerror})", fix="leave --port out"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="attnsweep serve", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/?token={served.token}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(served: ServedReport) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SECONDS_FOR_A_REQUEST
        server_version = "attnsweep"
        sys_version = ""

        def do_GET(self) -> None:
            port = int(self.connection.getsockname()[1])
            host, cookies = self.headers.get("Host", ""), self.headers.get("Cookie", "")
            status, text, more = served.answer(self.path, host, cookies, port)
            content = text.encode("utf-8", errors="replace")
            self.send_response(status)
            for name, value in {**_HEADERS, **more, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: requests contain the token."""

    return Handler


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", errors="replace"), expected.encode())


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
