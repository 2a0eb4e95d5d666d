"""Door. A private folder on the driver for data that a Spark session must not put into plans.

Its name is random, it is in a folder that only this user can use, and its owner is the process with
which the session ends: the program on the driver, or for Spark's Python workers the JVM that
started them. Without the planner extension, planning workers of one session share no variable that
plake could set, so they find the owner among their parents. A program removes its folder when it
ends; the next session removes the folder of any other owner that has ended.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KEY = "key"  # a file with 32 random bytes in each folder
_OWNER = "owner"
_KEEP_SECONDS = 30 * 24 * 3600
# How Spark starts Python workers: python -m pyspark.daemon, -m pyspark.sql.worker.…
_WORKER = re.compile(rb"\0-m\0pyspark\.|-m pyspark\.")


class NotPrivateError(Exception):
    """Somebody else could read, or could have made, the folder; the text says which."""


def session_folder() -> Path:
    """The folder of this session; it is made if there is none.

    Raises:
        NotPrivateError, OSError
    """
    base, owner = _base(), _owner()
    handle = os.open(base, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)  # workers that begin at the same time share one
        for folder, text in _folders(base):
            if text == owner:
                return folder
        _remove_ended(base)
        folder = Path(tempfile.mkdtemp(dir=base))
        keep(folder, KEY, secrets.token_bytes(32))
        keep(folder, _OWNER, owner.encode())
    finally:
        os.close(handle)
    if owner.startswith(f"{os.getpid()} "):
        remove_at_exit()
    return folder


def keep(folder: Path, name: str, content: bytes) -> None:
    """Write a file that only this user can read, all at once."""
    handle, path = tempfile.mkstemp(dir=folder)  # 0600
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(path, folder / name)


def kept(name: str) -> bytes | None:
    """A file of any session of this user, by its name, which nobody can guess.

    Raises:
        NotPrivateError
    """
    for folder, _ in _folders(_base()):
        try:
            content = (folder / name).read_bytes()
            os.utime(folder)
        except OSError:
            continue
        return content
    return None


def remove_at_exit() -> None:
    """Remove, at its end, the folders of this process and of a JVM that it started."""
    atexit.unregister(_remove_own)
    atexit.register(_remove_own, os.getpid())


def _remove_own(process: int) -> None:
    if process != os.getpid():
        return  # a fork
    try:
        for folder, owner in _folders(_base()):
            pid, _, place = owner.split(" ", 2)
            if place == _namespace() and process in (int(pid), _parent(int(pid))[0]):
                shutil.rmtree(folder, ignore_errors=True)
    except (NotPrivateError, OSError, ValueError):
        return


# --- folders -------------------------------------------------------------------


def _base() -> Path:
    folder = Path(tempfile.gettempdir()) / f"plake-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NotPrivateError(f"{folder} is not a folder of this user alone")
    return folder


def _folders(base: Path) -> Iterator[tuple[Path, str]]:
    """The folders of sessions, each with its owner."""
    for folder in sorted(base.iterdir()):
        try:
            yield folder, (folder / _OWNER).read_text()
        except (OSError, ValueError):
            continue


def _remove_ended(base: Path) -> None:
    """Remove folders whose owner has ended, and folders that were not used for a month."""
    owners = dict(_folders(base))
    for path in base.iterdir():
        owner = owners.get(path, "")
        try:
            old = time.time() - path.stat().st_mtime > _KEEP_SECONDS
            if path.is_dir() and (_has_ended(owner) if owner.endswith(_namespace()) else old):
                shutil.rmtree(path, ignore_errors=True)
            elif old and not path.is_dir():
                path.unlink()
        except OSError:
            continue


# --- processes -----------------------------------------------------------------


def _owner() -> str:
    """The process with which this session ends, identified so that no later one matches."""
    pid = os.getpid()
    parent, command = _parent(pid)
    while _WORKER.search(command) and parent > 1:
        pid = parent
        parent, command = _parent(pid)
    return f"{pid} {_started(pid)} {_namespace()}"


def _has_ended(owner: str) -> bool:
    pid, started, _ = owner.split(" ", 2)
    return _started(int(pid)) != started


def _namespace() -> str:
    """The scope of process numbers, because containers may share a folder."""
    try:
        return os.readlink("/proc/self/ns/pid") + "@" + os.uname().nodename.replace(" ", "_")
    except OSError:
        return "@" + os.uname().nodename.replace(" ", "_")


def _stat(pid: int) -> list[str]:
    """The fields after the name of a process in Linux's `stat`; its state is the first."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _parent(pid: int) -> tuple[int, bytes]:
    """The parent of a process, and its own command line; (0, b"") if it is gone."""
    try:
        return int(_stat(pid)[1]), Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, LookupError, ValueError):
        fields = _ps(pid, "ppid=,command=").split(None, 1)
        return (int(fields[0]), fields[1]) if len(fields) == 2 else (0, b"")


def _started(pid: int) -> str:
    """When a process started; the empty text if it is gone."""
    try:
        fields = _stat(pid)
        return "" if fields[0] == "Z" else fields[19]
    except (OSError, LookupError):
        return "_".join(_ps(pid, "lstart=").decode(errors="replace").split())


def _ps(pid: int, columns: str) -> bytes:
    """The output of `ps`, for systems without /proc, such as macOS."""
    if os.path.isdir("/proc/self"):
        return b""
    command = ["ps", "-o", columns, "-p", str(pid)]
    return subprocess.run(command, capture_output=True, check=False).stdout.strip()
