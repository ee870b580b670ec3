"""Renews a report while its sweeps run: rewrites its file, or serves it to a browser on this machine (`attnsweep
serve`)."""

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

from attnsweep.orchestrator.ledger.fragments import names_in_all
from attnsweep.orchestrator.report.page import make_report, write_report
from attnsweep.orchestrator.storage.place_names import PlaceName
from attnsweep.orchestrator.storage.run_records import progress_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
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
_CHANGES = "/changes"
_LOOK_SECONDS = 2.0
_SECONDS_OF_SILENCE = 20
"""After this time without a new version, the server sends an open page the number of the old one again, because only
writing shows whether the connection is lost."""
_Answer: TypeAlias = tuple[HTTPStatus, str, dict[str, str]]
"""The answer to a request: the status, the body and further headers."""


@dataclass
class ServedReport:
    """The newest version of a served report, and the secrets that a browser needs to read it. Thread-safe.

    Attributes:
        page: The newest version, as HTML; empty before the first version, for which requests wait.
        number: The number of the version, from 0; `None` once there will be no more. The path `/changes` sends it to
            the browser.
        token: The secret in the URL that the user is given. The server exchanges it for the cookie, so that it does not
            stay in the address bar.
        session: The value of the cookie.
    """

    page: str = ""
    number: int | None = 0
    token: str = field(default_factory=secrets.token_urlsafe)
    session: str = field(default_factory=secrets.token_urlsafe)
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def renew(self, page: str, number: int) -> None:
        """Replaces the served page by a new version, and wakes all threads that wait for one."""
        with self._changed:
            self.page, self.number = page, number
            self._changed.notify_all()

    def first_page(self) -> str:
        """Waits for the first version of the page and returns its HTML; an empty text if the server stops before."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self.page) or self.number is None)
            return self.page

    def end(self) -> None:
        """Announces that no new version will follow, and wakes all waiting threads."""
        with self._changed:
            self.number = None
            self._changed.notify_all()

    def number_after(self, known: int | None) -> int | None:
        """Waits, at most 20 s, for a version of the page with another number than `known`; returns the number of the
        newest version."""
        with self._changed:
            self._changed.wait_for(lambda: self.number != known, _SECONDS_OF_SILENCE)
            return self.number

    def answer(self, target: str, host: str, cookies: str, port: int) -> _Answer:
        """Answers a browser's GET request with the page; refuses a request whose host or cookie is wrong.

        Args:
            target: The path with its query.
            host, cookies: The headers `Host` and `Cookie`.
            port: The server's port.
        """
        # A request for another host name comes from a website whose name was made to point to this machine (DNS
        # rebinding). It is refused.
        if host not in (f"{LOOPBACK}:{port}", f"localhost:{port}"):
            return HTTPStatus.FORBIDDEN, "Open the address that attnsweep serve has printed.", {}
        parts = urlsplit(target)
        if parts.path not in ("/", _CHANGES):
            return HTTPStatus.NOT_FOUND, "There is one page, at /.", {}
        # The cookie's name contains the port, because a browser sends the cookies of a host to all ports of the host.
        name = f"attnsweep-{port}"
        if any(_same(given, self.token) for given in parse_qs(parts.query).get("token", ())):
            cookie = f"{name}={self.session}; HttpOnly; SameSite=Strict; Path=/"
            return HTTPStatus.SEE_OTHER, "", {"Location": "/", "Set-Cookie": cookie}
        if not _same(_cookie(cookies, name), self.session):
            return HTTPStatus.FORBIDDEN, "Open the address that attnsweep serve has printed, with its token.", {}
        return HTTPStatus.OK, "" if parts.path == _CHANGES else self.first_page(), {}


def serve_report(directories: Sequence[PlaceName], port: int, told: Callable[[str], None]) -> None:
    """Serves the report on the loopback interface until interrupted. Renews it whenever a ledger has changed.

    Args:
        directories: The sweeps, at least one.
        port: The port to listen on; 0 means any free port.
        told: Called with the URL once the server answers.

    Raises:
        UserError: As `make_report`, or for a port that is taken.
    """
    ended = threading.Event()
    looks = changes(directories, ended)
    next(looks)
    served = ServedReport()
    with _listening(served, port) as url:
        # The browser is opened before the first report is made, because making a report takes seconds.
        told(url)
        served.renew(make_report(directories, renewal=0)[0], 0)
        for number, _ in enumerate(looks, 1):
            served.renew(make_report(directories, renewal=number)[0], number)


@contextmanager
def _listening(served: ServedReport, port: int) -> Iterator[str]:
    """A context in which the server answers requests in other threads. Yields the URL for the user, which contains the
    secret token."""
    try:
        server = ThreadingHTTPServer((LOOPBACK, port), _handler(served))
    except OSError as error:
        raise UserError(
            "--port",
            given=port,
            expected=f"a port that can be opened ({error.strerror})",
            fix="leave out --port: attnsweep then chooses a free port",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="attnsweep serve", daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/?token={served.token}"
    finally:
        served.end()
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
            # The error is ignored: a browser may close the connection before it has read the whole response.
            with suppress(ConnectionError):
                if status == HTTPStatus.OK and urlsplit(self.path).path == _CHANGES:
                    self._tell_changes()
                else:
                    self._send(status, text.encode("utf-8", errors="replace"), more)

        def _send(self, status: HTTPStatus, content: bytes, more: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**_HEADERS, "Content-Length": str(len(content)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def _tell_changes(self) -> None:
            """Sends the number of each new version of the page as a server-sent event, until one side closes the
            connection."""
            self.send_response(HTTPStatus.OK)
            for name, value in {**_HEADERS, "Content-Type": "text/event-stream"}.items():
                self.send_header(name, value)
            self.end_headers()
            number: int | None = None
            while (number := served.number_after(number)) is not None:
                self.wfile.write(f"data: {number}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:
            """Logs no requests, because the address of the first one contains the secret token that admits the user."""

    return Handler


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", errors="replace"), expected.encode())


def _cookie(header: str, name: str) -> str:
    try:
        cookie = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if cookie is None else cookie.value


def watch_report(directories: Sequence[PlaceName], out: Path | None, told: Callable[[Path], None]) -> None:
    """Writes the report, and rewrites it whenever a ledger has changed, until none of the sweeps is running.

    Args:
        directories: The sweeps, at least one.
        out: As for `write_report`.
        told: Called with the path each time the file was written.

    Raises:
        UserError: As `write_report`.
    """
    for is_running in changes(directories, threading.Event()):
        told(write_report(directories, out))
        if not is_running:
            return


def changes(directories: Sequence[PlaceName], ended: threading.Event) -> Iterator[bool]:
    """Yields once at the start, then each time that a ledger has changed or a run has begun or ended. The value says
    whether a run is in progress.

    Looks for changes every two seconds. If the caller takes longer to handle a change, the pause after it is as long as
    the caller took, so that making reports of a large sweep takes at most half of the time.

    Args:
        directories: The sweeps.
        ended: Set it to end the iteration.
    """
    seen = None
    while not ended.is_set():
        before, pause = time.monotonic(), _LOOK_SECONDS
        # The state of the sweeps is read here, before the caller reads their ledgers. So if rows are committed between
        # these two reads, the next round reports the commit as a change.
        states = [_state(SweepDirectory.open(name)) for name in directories]
        if states != seen:
            seen = states
            yield any(is_running for is_running, _, _ in states)
            pause = max(pause, time.monotonic() - before)
        ended.wait(pause)


def _state(directory: SweepDirectory) -> tuple[bool, bool, list[str]]:
    progress = None if directory.finished else progress_of(directory.homes)
    is_running = progress is not None and progress.is_running(datetime.now(UTC))
    return is_running, directory.finished, names_in_all(directory.place)
