"""Hosts that let each other in by SSH, each with an environment that pip fills without a network."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.hosts.namespaces import ROOT, Host

PROGRAMS = ("/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen", "/usr/bin/rsync")
_ENVIRONMENT = "/root/attnsweep-env"
_NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info")
# On a host everything of /run is its own.
_SSHD = """
set -e
mount -t tmpfs run /run
mkdir /run/sshd
exec /usr/sbin/sshd -h /root/.ssh/host_key -o StrictModes=no -o UsePAM=no -o PidFile=none
"""
_RAY = f"""#!{_ENVIRONMENT}/bin/python
import sys
from ray.scripts.scripts import main
sys.exit(main())
"""


def check_programs() -> None:
    """Skips the test where SSH or rsync is missing."""
    if missing := [Path(each).name for each in PROGRAMS if not Path(each).exists()]:
        pytest.skip(f"no {', '.join(missing)}: apt-get install openssh-server openssh-client rsync")


def make_key(folder: Path) -> Path:
    """A key that opens all hosts; its public half lies beside it."""
    key = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key


def open_to_ssh(host: Host, key: Path) -> None:
    """Lets the holder of a key in as root; the host itself holds it too."""
    home = host.path("/root")
    (home / ".ssh").mkdir(mode=0o700)
    for name, source in (("id_ed25519", key), ("host_key", key), ("authorized_keys", key.with_suffix(".pub"))):
        shutil.copyfile(source, home / ".ssh" / name)
        (home / ".ssh" / name).chmod(0o600)
    for name in (".bashrc", ".profile"):
        shutil.copyfile(f"/etc/skel/{name}", home / name)
    host.run("bash", "-c", _SSHD)


def make_environment(host: Host) -> None:
    """The folder of an environment that has all libraries, but not attnsweep."""
    host.run(sys.executable, "-c", f"import venv; venv.create({_ENVIRONMENT!r}, symlinks=True)")
    folder = host.path(_ENVIRONMENT)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Only a path: what is installed there as editable stays out.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ray = folder / "bin" / "ray"
    ray.write_text(_RAY)
    ray.chmod(0o755)
    settings = host.path("/root/.config/pip/pip.conf")
    settings.parent.mkdir(parents=True)
    settings.write_text("[install]\nno-index = true\nno-build-isolation = false\n")


def copy_repository(host: Host) -> Path:
    """The repository in the user's home; returns it as the test sees it."""
    folder = host.path("/root/attnsweep")
    shutil.copytree(ROOT, folder, symlinks=True, ignore=_NOT_COPIED)
    return folder
