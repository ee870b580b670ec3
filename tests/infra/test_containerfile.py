"""The image: what hadolint says of its file, which versions it pins; and, built here, that attnsweep runs in it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.infra.commands import ROOT, requirement

CONTAINERFILE = ROOT / "infra" / "Containerfile"
TEXT = CONTAINERFILE.read_text()
HADOLINT = Path(sys.executable).with_name("hadolint")
SECONDS_TO_BUILD = 1500


def _linted(text: str) -> str:
    done = subprocess.run([HADOLINT, "-"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_hadolint_finds_nothing() -> None:
    assert _linted(TEXT) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "code"),
    [
        ("--no-cache-dir /src", "/src", "DL3042"),
        ("USER 1000", "USER root", "DL3002"),
        ('"torch==${TORCH}"', "torch", "DL3013"),
        ("WORKDIR /home/attnsweep", "WORKDIR home", "DL3000"),
    ],
)
def test_hadolint_finds_a_fault(right: str, wrong: str, code: str) -> None:
    assert right in TEXT
    assert code in _linted(TEXT.replace(right, wrong))


def test_its_versions_are_those_that_the_package_asks_for() -> None:
    given = dict(re.findall(r"^ARG (\w+)=(.+)$", TEXT, re.MULTILINE))
    assert requirement("torch").specifier.contains(given["TORCH"])
    assert requirement("ray").specifier.contains(given["RAY"])
    assert re.search(r":\d+\.\d+\.\d+-", given["BASE"])
    job = yaml.safe_load((ROOT / "infra/kubernetes/base/rayjob.yaml").read_text())
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == given["RAY"]


def test_nobody_is_root_in_it() -> None:
    assert re.findall(r"^USER (\d+)$", TEXT, re.MULTILINE) == ["1000"]


def test_what_it_copies_is_there() -> None:
    kept = re.findall(r"^!(.+)$", (ROOT / ".containerignore").read_text(), re.MULTILINE)
    assert all((ROOT / name).exists() for name in kept)
    rooms = {link.name for link in (ROOT / "src" / "attnsweep").iterdir() if link.is_symlink()}
    assert rooms <= set(kept)


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[list[str]]:
    """The command, with a store of its own, in which `localhost/base` is a bare Debian with Python."""
    if os.getuid() != 0:
        pytest.skip("images are built as root alone, without isolation of their own")
    if missing := [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]:
        pytest.skip(f"no {', '.join(missing)}: apt-get install buildah debootstrap")
    command = ["buildah", "--root", f"{tmp_path}/root", "--runroot", f"{tmp_path}/run", "--storage-driver", "overlay"]
    base = tmp_path / "base"
    try:
        _run("debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm", base)
        container = _run(*command, "from", "scratch").strip()
        _run(*command, "copy", "--quiet", container, base, "/")
        _run(*command, "commit", "--quiet", container, "localhost/base")
        yield command
        _run(*command, "rm", "--all")
        _run(*command, "rmi", "--all", "--force")
    finally:
        # What debootstrap mounts while it runs, and buildah for its store.
        for mounted in (base / "proc", base / "sys", tmp_path / "root" / "overlay"):
            subprocess.run(["umount", "--lazy", mounted], capture_output=True, check=False)
        shutil.rmtree(base, ignore_errors=True)


@pytest.mark.scale
@pytest.mark.timeout(2 * SECONDS_TO_BUILD)
def test_an_image_that_is_built_here_runs_attnsweep(buildah: list[str]) -> None:
    _run(
        *(*buildah, "build", "--isolation", "chroot", "--build-arg", "BASE=localhost/base"),
        *("--build-arg", "TORCH_INDEX=https://pypi.org/simple", *_pip_settings()),
        *("--tag", "localhost/attnsweep", "--file", CONTAINERFILE, ROOT),
    )
    container = _run(*buildah, "from", "localhost/attnsweep").strip()
    inside = [*buildah, "run", "--isolation", "chroot", container, "--"]
    assert "quickstart" in _run(*inside, "attnsweep", "specs")
    assert _run(*inside, "id", "-u") == "1000\n"
    assert _run(*inside, "ray", "--version").startswith("ray, version 2.60.")


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_BUILD, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _pip_settings() -> Iterator[str]:
    """Where pip finds packages on this machine, for pip in the image: folders, certificates, its configuration."""
    listed = _run(sys.executable, "-m", "pip", "config", "list")
    # The files that an index in a folder leads to lie beside it.
    folders = {Path(word).parent for word in re.findall(r"file://(/[\w/.-]+)", listed)}
    folders |= {Path(word) for word in re.findall(r"(?<![:\w/.-])/[\w/.-]+", listed)}
    for path in sorted({Path("/etc/ssl/certs"), *folders}):
        if path.exists():
            yield from ("--volume", f"{path}:{path}:ro")
    configuration = Path("~/.config/pip/pip.conf").expanduser()
    if configuration.exists():
        yield from ("--volume", f"{configuration}:/etc/pip.conf:ro")
