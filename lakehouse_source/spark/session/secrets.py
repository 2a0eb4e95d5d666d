"""Door. Keeps secrets on the driver, and away from hosts that the application did not name.

Spark pickles the data source, the reader and the writer into every task. They carry a
token instead of a URL with a password. The URL is on the driver, in a file of the session's private
folder, which is deleted with the session.

Only `catalog = env:NAME` hides a password completely, and stores nothing here: Spark prints the
options of a write in errors of its own analysis, without redaction.

The private folder holds what a Spark session must not put into plans. Its name is random, it is in
a folder that only this user can use, and its owner is the process with which the session ends: the
program on the driver, or for Spark's Python workers the JVM that started them. Without the planner
extension, planning workers of one session share no variable that plake could set, so they find the
owner among their parents. A program removes its folder when it ends; the next session removes the
folder of any other owner that has ended.
"""

from __future__ import annotations

import atexit
import fcntl
import hmac
import json
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lakehouse_source.catalog import redact
from lakehouse_source.catalog.base import UrlOfQuery
from lakehouse_source.errors import CatalogUnavailableError, InvalidOptionError
from lakehouse_source.read.address import Address
from lakehouse_source.spark.protocol.vocabulary import Place, Setting
from lakehouse_source.spark.session.options import Options
from lakehouse_source.storage.location import check_query, hosts_named
from lakehouse_source.storage.options import allow, gets_secrets, is_from_environment, may_be_secret
from lakehouse_source.storage.uris import scheme_of

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


_PREFIX = "plake-token:"
_TOKEN = re.compile(r"[0-9a-f]{32}")


def conceal(url: str | None) -> str | None:
    """The URL itself if it holds no password, else a token for it.

    One URL has one token in a session, because Spark compares options. The token is a MAC by a
    random key of the session, so that nobody finds the password by trying.

    Raises:
        CatalogUnavailableError: there is no private place for the URL.
    """
    if url is None or url.startswith((_PREFIX, "env:")) or redact(url) == url:
        return url
    try:
        folder = session_folder()
        token = hmac.digest((folder / KEY).read_bytes(), url.encode(), "sha256").hex()[:32]
        if not (folder / token).exists():
            keep(folder, token, url.encode())
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    return _PREFIX + token


def reveal(url: str | None) -> str | None:
    """The URL of a token. Anything else is returned unchanged.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver, or the
            session has ended.
    """
    if url is None or not url.startswith(_PREFIX):
        return url
    token = url[len(_PREFIX) :]
    try:
        found = kept(token) if _TOKEN.fullmatch(token) else None
    except (NotPrivateError, OSError) as error:
        raise CatalogUnavailableError(catalog="(concealed)", reason=str(error)) from error
    if found is None:
        raise CatalogUnavailableError(
            catalog="(concealed)",
            reason="its URL is known on the driver only, while the session lasts; put the URL into "
            "an environment variable of the driver and use catalog 'env:NAME'",
        )
    return found.decode()


# --- The hosts to which a query may send secrets: those that the application itself names.
#
# A query (SQL, options, `SET`) may name any host. The application's own configuration, which no
# query changes, and the environment name the hosts that may get secrets:
# `spark.plake.hosts.allowed`, and the hosts of Spark's configured catalogs. Planning workers get
# that configuration in their environment (`PlakeSource.java`), the program on the driver asks its
# `SparkConf`.


_CATALOGS = "spark.sql.catalog."
_STORAGE = "storage."
_SERVERS = ("postgresql://", "postgres://")


def take_configuration() -> None:
    """Permit what the static configuration of this application permits."""
    _take(_configuration())


def catalog_of_query(url: str | None) -> str | None:
    """The catalog's URL from an option, or from its token (`secrets`).

    The URL is marked (`UrlOfQuery`) unless the configuration names all of its hosts.

    Raises:
        CatalogUnavailableError: this machine does not have the URL: it is not the driver.
    """
    take_configuration()
    url = reveal(url)
    if url is None or not url.lower().startswith(_SERVERS):
        return url
    # Imported here: the driver of the database takes long to import.
    from lakehouse_source.catalog.backends.postgres_address import hosts_of

    hosts = hosts_of(url)
    return url if hosts and all(map(gets_secrets, hosts)) else UrlOfQuery(url)


def allow_hosts_of(spark: Any, url: str) -> None:
    """Add the hosts of a catalog that the program names to the configuration of a session."""
    if not url.lower().startswith(_SERVERS):
        return
    from lakehouse_source.catalog.backends.postgres_address import hosts_of

    conf = spark.sparkContext._jsc.sc().conf()
    listed = conf.get(Setting.HOSTS_ALLOWED, "").split(",")
    hosts = dict.fromkeys(one for one in (*listed, *(hosts_of(url) or ())) if one)
    conf.set(Setting.HOSTS_ALLOWED, ",".join(hosts))


def check_hosts(uri: str, storage: Mapping[str, str]) -> None:
    """Refuse to send secrets to a host that the configuration does not name.

    Raises:
        InvalidOptionError: the URI or an option names such a host.
    """
    take_configuration()
    check_query(uri, storage)


def _configuration() -> dict[str, str]:
    """The parts of the static configuration that name what is permitted."""
    text = os.environ.get(Setting.STATIC)
    if text is not None:
        found = json.loads(text)
        return found if isinstance(found, dict) else {}
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.SparkContext._active_spark_context
    if context is None:
        return {}
    return {k: v for k, v in context.getConf().getAll() if k.startswith("spark.")}


def _take(configuration: Mapping[str, str]) -> None:
    allow(
        configuration.get(Setting.ENV_ALLOWED),
        ",".join([configuration.get(Setting.HOSTS_ALLOWED, ""), *_of_catalogs(configuration)]),
    )


def _of_catalogs(configuration: Mapping[str, str]) -> Iterable[str]:
    """The hosts of Spark's catalogs that the configuration sets."""
    catalogs: dict[str, dict[str, str]] = {}
    for key, value in configuration.items():
        name, _, rest = key.removeprefix(_CATALOGS).partition(".")
        if key.startswith(_CATALOGS) and rest:
            catalogs.setdefault(name, {})[rest] = value
    for settings in catalogs.values():
        url = reveal(settings.get(Place.CATALOG))
        if url is not None and url.lower().startswith(_SERVERS):
            from lakehouse_source.catalog.backends.postgres_address import hosts_of

            yield from hosts_of(url) or ()
        storage = {k.removeprefix(_STORAGE): v for k, v in settings.items() if _STORAGE in k}
        yield from hosts_named(settings.get(Place.WAREHOUSE, "/"), storage)


# --- Storage options as options of the data source: `.option("storage.region", "eu-west-1")`.
#
# Spark shows the options of a frame in plans, in its user interface and in errors of its own
# analysis. So a value that may be a secret must be given as `env:NAME`. The driver reads the
# variable; executors get the value in the pickled reader or writer, which Spark does not show or
# log.


PREFIX = "storage."


def split_storage_options(
    options: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, str]]:
    """The options without storage options, and the storage options without their prefix."""
    others: dict[str, str] = {}
    storage: dict[str, str] = {}
    for name, value in options.items():
        if name.lower().startswith(PREFIX):
            storage[name[len(PREFIX) :]] = value
        else:
            others[name] = value
    return others, storage


def check_no_secrets(path: str, storage: Mapping[str, str]) -> None:
    """Refuse secrets among the options of a store, and hosts that may not get any.

    Raises:
        InvalidOptionError: a value may be a secret and is not `env:NAME`, or the application's
            configuration does not name a host that would get a secret.
    """
    for name, value in storage.items():
        if may_be_secret(scheme_of(path), name) and not is_from_environment(value):
            raise InvalidOptionError(
                option=PREFIX + name,
                reason="may be a secret, and Spark shows options in plans and errors. Put the "
                "value into an environment variable of the driver and give 'env:NAME'. Without "
                "this option the executors use what the store's client finds on their machines.",
            )
    check_hosts(path, storage)


def address_in(given: Options, storage: Mapping[str, str]) -> Address:
    """The dataset that the options of a frame name, on the driver.

    Raises:
        InvalidOptionError: there is no path, or see `check_no_secrets`.
        CatalogUnavailableError: this machine does not have the catalog's URL: it is not the driver.
    """
    path = given.path()
    check_no_secrets(path, storage)
    return Address(path, catalog_of_query(given.text("catalog")), storage)
