"""A report that is made again while its sweep goes on: as a file, and as a page on loopback for its user alone."""

import http.client
import itertools
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from attnsweep.orchestrator.report.serving import LOOPBACK, ServedReport, changes, serve_report, watch_report
from attnsweep.orchestrator.storage.run_records import Beacon
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.errors import UserError
from tests.orchestrator.report.served import served
from tests.orchestrator.small_sweep import commit, folder_of, open_writer, small_sweep, trial_rows

PORT = 4321
HERE = f"{LOOPBACK}:{PORT}"


@pytest.fixture
def directory(tmp_path: Path) -> SweepDirectory:
    directory = SweepDirectory.create(tmp_path / "sweep", small_sweep("watched", space={"n_steps": 8}, trials=2), {})
    with open_writer(directory):
        pass
    return directory


def _train(directory: SweepDirectory, trial: int) -> None:
    with open_writer(directory) as writer:
        commit(writer, trial_rows(trial, ["solved"], sweep=directory.sweep))


def test_each_change_is_seen_once_and_the_end_of_the_run(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.report.serving._LOOK_SECONDS", 0.01)
    beacon = Beacon(directory.place)
    beacon.show("training", 1, [])
    ended = threading.Event()
    looks = changes([directory.place], ended)
    assert next(looks)
    _train(directory, 0)
    assert next(looks)
    beacon.end()
    assert not next(looks)
    # Nothing has changed since: it looks until it is told to end.
    threading.Timer(0.05, ended.set).start()
    assert list(looks) == []


@pytest.mark.scale
@pytest.mark.slow
def test_the_file_is_written_again_until_the_run_ends(
    directory: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnsweep.orchestrator.report.serving._LOOK_SECONDS", 0.01)
    beacon = Beacon(directory.place)
    beacon.show("training", 1, [])
    pages = []

    def told(path: Path) -> None:
        pages.append(path.read_text())
        if len(pages) == 1:
            _train(directory, 0)
        else:
            beacon.end()

    watch_report([directory.place], None, told)
    assert "The ledger holds no training yet." in pages[0]
    assert "<h2>Outcomes</h2>" in pages[-1]
    assert len(pages) == 3


def test_a_sweep_that_does_not_run_is_written_once(directory: SweepDirectory) -> None:
    paths: list[Path] = []
    watch_report([directory.place], None, paths.append)
    assert paths == [folder_of(directory) / "report" / "report.html"]


def test_the_token_is_exchanged_for_a_cookie() -> None:
    served = ServedReport("the page")
    status, text, headers = served.answer(f"/?token={served.token}", HERE, "", PORT)
    assert (status, text, headers["Location"]) == (303, "", "/")
    cookie, _, terms = headers["Set-Cookie"].partition(";")
    assert terms == " HttpOnly; SameSite=Strict; Path=/"
    assert served.token not in cookie
    for host in (HERE, f"localhost:{PORT}"):
        assert served.answer("/", host, f"a=b; {cookie}", PORT)[:2] == (200, "the page")


def test_whoever_comes_before_the_first_page_gets_it_once_it_is_made() -> None:
    """Making it takes seconds, in which the address is shown and opened."""
    served = ServedReport()
    with ThreadPoolExecutor() as browser:
        waiting = browser.submit(served.answer, "/", HERE, f"attnsweep-{PORT}={served.session}", PORT)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.1)
        served.renew("the page", 0)
        assert waiting.result(60)[:2] == (200, "the page")
    never = ServedReport()
    never.end()
    assert never.first_page() == ""


@pytest.mark.parametrize("target", ["/", "/changes", "/?token=", "/?token=x", "/?token=é", "/?token=\ud800", "/?x=y"])
def test_without_token_and_cookie_nothing_is_shown(target: str) -> None:
    served = ServedReport("the page")
    for cookies in ("", f"attnsweep-{PORT}=x", f"attnsweep-1={served.session}", "=;=", f"attnsweep-{PORT}"):
        status, text, headers = served.answer(target, HERE, cookies, PORT)
        assert (status, headers) == (403, {})
        assert "the page" not in text


@pytest.mark.parametrize("host", ["", "evil.example", f"evil.example:{PORT}", LOOPBACK, f"{LOOPBACK}:1", "[::1]:4321"])
def test_under_another_name_nothing_is_shown(host: str) -> None:
    served = ServedReport("the page")
    cookie = f"attnsweep-{PORT}={served.session}"
    for target in ("/", f"/?token={served.token}"):
        assert served.answer(target, host, cookie, PORT)[0] == 403


@pytest.mark.parametrize("path", ["/sweep.json", "//", "/..", "/../sweep.json", "/%2e%2e/", "x"])
def test_there_is_one_page_and_no_file(path: str) -> None:
    served = ServedReport("the page")
    assert served.answer(path, HERE, f"attnsweep-{PORT}={served.session}", PORT)[0] == 404


@pytest.fixture
def url(directory: SweepDirectory) -> Iterator[str]:
    with served(directory) as found:
        yield found
    with pytest.raises(ConnectionRefusedError):
        _ask(found, "/")


@contextmanager
def _opened(url: str, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request("GET", path, headers=headers)
    with connection.getresponse() as answer:
        yield answer


def _ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode()


@pytest.mark.slow
def test_the_served_page_is_renewed_and_nothing_else_is_done(directory: SweepDirectory, url: str) -> None:
    parts = urlsplit(url)
    assert _ask(url, "/")[0] == 403
    assert _ask(url, "/", Host="evil.example")[0] == 403
    assert _ask(url, "/", "POST")[0] == _ask(url, "/", "DELETE")[0] == 501
    status, headers, _ = _ask(url, f"/?{parts.query}")
    assert status == 303
    cookie = headers["Set-Cookie"].partition(";")[0]
    status, headers, page = _ask(url, "/", Cookie=cookie)
    assert status == 200
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert "The ledger holds no training yet." in page
    assert "connect-src 'self';" in page
    assert 'data-renewal="0"' in page
    with _opened(url, "/changes", Cookie=cookie) as events:
        assert events.headers["Content-Type"] == "text/event-stream"
        assert events.readline() == b"data: 0\n"
        assert events.readline() == b"\n"
        _train(directory, 0)
        assert events.readline() == b"data: 1\n"
    assert any("<h2>Outcomes</h2>" in _ask(url, "/", Cookie=cookie)[2] for _ in itertools.repeat(None, 10_000))


def test_a_port_that_is_taken(directory: SweepDirectory) -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as taken,
        pytest.raises(UserError, match=r"--port: got .* leave out --port"),
    ):
        serve_report([directory.place], taken.getsockname()[1], lambda _: None)
