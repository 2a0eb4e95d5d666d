"""Runs each statement and API on Spark 4.1 to 4.3, classic and Connect, with SQLite and PostgreSQL.

    python integration/statements.py [--spark 4.1 ...] [--venvs FOLDER] [--as-is] [--only REGEX]
        [--clients classic ...] [--catalogs SQLite ...] [--outcomes FILE]

For each version a virtual environment (`spark_versions.py`), in which a process of its own tries
every case of `statement_cases.py`: it works, with the rows that are expected, or it is refused with
the text that is expected. The outcomes of all are written as a table to `statements.md`. The exit
status is 1 where an outcome is another one. `--as-is` takes the environments in FOLDER as they are,
with this checkout before the installed package. `--outcomes` keeps the outcomes in a file, to which
runs of a part add theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
REPORT = CHECKOUT / "integration" / "statements.md"
VERSIONS = ("4.1", "4.2", "4.3")
CLIENTS = ("classic", "Connect")
CATALOGS = ("SQLite", "PostgreSQL")
PLACES = tuple(
    f"{version} {client} {catalog}"
    for version in VERSIONS
    for client in CLIENTS
    for catalog in CATALOGS
)
WORKS = "works"
# By the name of a case.
Outcomes = dict[str, str]


# --- in the environment -----------------------------------------------------------


def session(client: str, url: str, folder: Path) -> Any:
    """A session as an administrator's settings make it: the jar and a catalog of plake."""
    from pyspark.sql import SparkSession

    from lakehouse_source.spark.session.configure import planner_jar

    builder = SparkSession.builder
    builder = builder.remote("local[1]") if client == "Connect" else builder.master("local[1]")
    settings = {
        "spark.jars": str(planner_jar()),
        "spark.sql.catalog.plake": "io.plake.spark.PlakeCatalog",
        "spark.sql.catalog.plake.catalog": url,
        "spark.sql.catalog.plake.warehouse": str(folder / "tables"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.redaction.options.regex": "(?i)url|catalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.sql.sources.partitionOverwriteMode": "static",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def names_of(number: int, folder: Path) -> dict[str, str]:
    """The names of a case of its own."""
    path = str(folder / f"path{number}")
    return {
        "t": f"plake.st.c{number}",
        "s": f"spark_catalog.default.c{number}",
        "n": f"c{number}",
        "path": path,
        "p": f"plake.`{path}`",
    }


def plain(value: Any) -> Any:
    """A value that can be compared and shown: rows are tuples."""
    if isinstance(value, tuple):
        return tuple(plain(one) for one in value)
    return [plain(one) for one in value] if isinstance(value, list) else value


def rows_of(spark: Any, step: Any, names: Mapping[str, str]) -> list[Any]:
    """What a step gives, in one order; nothing where it gives no rows."""
    found = spark.sql(step.format(**names)) if isinstance(step, str) else step(spark, names)
    if found is None:
        return []
    rows = found if isinstance(found, list) else found.collect()
    return sorted((plain(tuple(row)) for row in rows), key=repr)


def outcome(spark: Any, case: Any, names: Mapping[str, str]) -> str:
    """`WORKS`, or what the refusal says, or how the rows differ."""
    for step in case.before:
        rows_of(spark, step, names)
    try:
        found = rows_of(spark, case.step, names)
    except Exception as error:
        return f"refused: {first_line(error, names)}"
    if case.check is not None:
        found = rows_of(spark, case.check, names)
    expected = [
        tuple(one.format(**names) if isinstance(one, str) else one for one in row)
        for row in case.rows or ()
    ]
    if case.rows is not None and found != sorted(expected, key=repr):
        return f"other rows: {found}"
    return WORKS


def first_line(error: Exception, names: Mapping[str, str]) -> str:
    """The first line of an error, without what is another one in each run."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    for key in ("t", "s", "path"):
        text = text.replace(names[key], key)
    return text


def inside(client: str, url: str, folder: Path, only: str) -> None:
    """Try every case; tell the outcomes as JSON in the last line."""
    from integration.statement_cases import GROUPS

    spark = session(client, url, folder)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS plake.st")
    found: Outcomes = {}
    cases = [case for group in GROUPS.values() for case in group]
    for number, case in enumerate(cases):
        if re.search(only, case.name) is None:
            continue
        try:
            found[case.name] = outcome(spark, case, names_of(number, folder))
        except Exception as error:  # what a case needs is missing
            traceback.print_exc()
            found[case.name] = f"not begun: {str(error).splitlines()[0]}"
        finally:
            spark.sql("SET spark.sql.sources.partitionOverwriteMode = static")
            spark.sql("USE spark_catalog.default")
        (folder / "outcomes.json").write_text(json.dumps(found))
    spark.stop()


# --- around it --------------------------------------------------------------------


def python_of(version: str, folder: Path, as_is: bool) -> Path:
    """The Python of an environment with this PySpark and a Connect client."""
    sys.path.insert(0, str(CHECKOUT / "integration"))
    from spark_connect import CLIENT
    from spark_versions import environment

    if as_is:
        return folder / f"spark-{version}" / "bin" / "python"
    python = environment(version, folder)
    subprocess.run([str(python), "-m", "pip", "--quiet", "install", *CLIENT], check=True)
    return python


def run(python: Path, client: str, url: str | None, only: str, as_is: bool) -> Outcomes:
    """The outcomes in one environment, with the catalog at a URL or else in SQLite."""
    with tempfile.TemporaryDirectory(prefix="plake-statements-") as scratch:
        folder = Path(scratch)
        link = folder / "code"
        link.mkdir()
        (link / "integration").symlink_to(CHECKOUT / "integration")
        places = [str(CHECKOUT), str(CHECKOUT / "spark_conf")] if as_is else [str(link)]
        command = [str(python), "-m", "integration.statements", "--inside", client]
        url = url or f"sqlite:///{scratch}/lake.db"
        command += [url, scratch]
        command += ["--only", only]
        log = folder / "log"
        clean = {
            **os.environ,
            "PLAKE_CATALOG": url,  # of `format("plake")`
            "PYTHONPATH": os.pathsep.join(places),
            "PYSPARK_PYTHON": str(python),
        }
        with log.open("w") as out:
            subprocess.run(command, cwd=scratch, env=clean, check=False, stdout=out, stderr=out)
        answer = folder / "outcomes.json"
        if not answer.exists():
            print(log.read_text()[-4000:])
            return {}
        return dict(json.loads(answer.read_text()))


def keep(file: Path | None, place: str, told: Outcomes) -> None:
    """Add the outcomes of an environment to those of a file."""
    if file is not None:
        found = json.loads(file.read_text()) if file.exists() else {}
        found[place] = found.get(place, {}) | told
        file.write_text(json.dumps(found, indent=1))


def wrong(found: Mapping[str, Outcomes]) -> list[str]:
    """What is not as the list of cases has it."""
    from integration.statement_cases import GROUPS

    wrong = []
    for place, outcomes in found.items():
        version, client, _ = place.split()
        for case in (one for group in GROUPS.values() for one in group):
            told = outcomes.get(case.name, "not run")
            refusal = case.refusal(version, client)
            if not (told == WORKS if refusal is None else _refuses(told, refusal)):
                wrong.append(f"{place}: {case.name}: {told}")
    return wrong


def _refuses(told: str, refusal: str) -> bool:
    return told.startswith("refused: ") and refusal in told


def report(found: Mapping[str, Outcomes]) -> str:
    """The table in Markdown. A refusal is a number, and its text stands below."""
    from integration.statement_cases import GROUPS

    texts: list[str] = []
    lines = [
        "# Statements and APIs, everywhere",
        "",
        "Written by `python integration/statements.py`. 4.1, 4.2 and 4.3 are versions of Spark,",
        "`C` is Spark Connect, `S` and `P` are catalogs in SQLite and PostgreSQL. `+`: it works,",
        "with the expected rows. A number: it is refused, as it must be, with the text below.",
        "Empty: not run.",
    ]
    for group, cases in GROUPS.items():
        lines += ["", f"## {group}", "", "| | " + " | ".join(map(_short, found)) + " |"]
        lines.append("|---" * (len(found) + 1) + "|")
        for case in cases:
            cells = [_cell(outcomes.get(case.name), texts) for outcomes in found.values()]
            lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    lines += ["", "## Refusals", ""]
    lines += [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    return "\n".join(lines) + "\n"


def _short(place: str) -> str:
    version, client, catalog = place.split()
    return f"{version}{'C' if client == 'Connect' else ''} {catalog[0]}"


def _cell(told: str | None, texts: list[str]) -> str:
    if told is None:
        return ""
    if told == WORKS:
        return "+"
    text = re.sub(r"(plake-(?:statements|postgres))-\w+", r"\1", told.removeprefix("refused: "))
    text = re.sub(r"\bc\d+\b", "t", text)
    if text not in texts:
        texts.append(text)
    return str(texts.index(text) + 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--spark", nargs="*", default=VERSIONS)
    parser.add_argument("--venvs", type=Path, help="keep the environments here")
    parser.add_argument("--as-is", action="store_true", help="install nothing")
    parser.add_argument("--clients", nargs="*", default=CLIENTS)
    parser.add_argument("--catalogs", nargs="*", default=CATALOGS)
    parser.add_argument("--only", default="", help="a regular expression for the names of cases")
    parser.add_argument("--outcomes", type=Path, help="a JSON file: begin with what it has")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        client, url, folder = options.inside
        inside(client, url, Path(folder), options.only)
        return 0
    sys.path.insert(0, str(CHECKOUT))
    from tests.postgres_server import PostgresServer

    found: dict[str, Outcomes] = {}
    server = PostgresServer()
    with tempfile.TemporaryDirectory(prefix="plake-statements-") as scratch:
        venvs = (options.venvs or Path(scratch)).resolve()
        try:
            for version in options.spark:
                python = python_of(version, venvs, options.as_is)
                for client in options.clients:
                    for catalog in options.catalogs:
                        url = server.fresh_database() if catalog == "PostgreSQL" else None
                        place = f"{version} {client} {catalog}"
                        told = run(python, client, url, options.only, options.as_is)
                        works = list(told.values()).count(WORKS)
                        print(f"{place}: {works} of {len(told)} work", flush=True)
                        found[place] = told
                        keep(options.outcomes, place, told)
        finally:
            server.stop()
    if options.outcomes is not None:
        found = json.loads(options.outcomes.read_text())
    differences = wrong(found)
    for one in differences:
        print("differs:", one)
    if options.outcomes is not None or found.keys() == set(PLACES):
        REPORT.write_text(report({place: found.get(place, {}) for place in PLACES}))
    else:
        print("not all environments were run: no table is written")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
