"""Every example of the pages and of public docstrings runs, and shows what really comes out.

A section (`##`) of a page is one session; so is a docstring, which goes on from the example of
its package. `/data/` stands for a new folder, and `postgresql://user@host/database` for a
database of a real server.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from sybil import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from sybil.parsers.rest import DocTestParser

import lakehouse_source as lake
from lakehouse_source.read.drawable import Drawable
from lakehouse_source.read.inspect import Inspection
from lakehouse_source.write.metadata.schema_change import SchemaUpdate

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGE = Path(lake.__file__).parent
PAGES = (
    *(ROOT / "README.md", ROOT / "spark_conf/README.md", PACKAGE / "spark/planner/README.md"),
    *sorted((ROOT / "docs").glob("*.md")),
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MANY_EXAMPLES = 6  # with Spark they take too long for `make test`
POSTGRES = "postgresql://user@host/database"
IN_DOCSTRINGS, IN_PAGES = DocTestParser(OPTIONS), PythonCodeBlockParser((), OPTIONS)

# Classes whose methods users call. Of the other public classes they read fields.
WITH_METHODS = (
    *(lake.Dataset, lake.DatasetCatalog, lake.Scan, lake.Changes, lake.Transaction, SchemaUpdate),
    *(Inspection, Drawable),
    *(lake.spark.PlakeTable, lake.spark.PlakeMergeBuilder),
    *(lake.spark.PlakeTableBuilder, lake.spark.PlakeOptimizeBuilder),
)


class Session(NamedTuple):
    """Examples that run one after the other in one namespace and one folder."""

    path: Path
    line: int  # of the first line of `text` in the file; from 0
    text: str
    parse: Callable[[Document], Any]

    def document(self, text: str | None = None) -> Document:
        """The examples; `text` stands for the original. Lines count as in the file."""
        found = Document("\n" * self.line + (self.text if text is None else text), str(self.path))
        for region in self.parse(found):
            found.add(region)
        return found

    def sources(self) -> list[str]:
        return [getattr(e.parsed, "source", e.parsed) for e in self.document().examples()]

    def uses(self, *names: str) -> bool:
        """Tell whether an example names one of these variables."""
        trees = [ast.parse(source) for source in self.sources()]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        return any(isinstance(node, ast.Name) and node.id in names for node in nodes)


def sections(page: Path) -> Iterator[tuple[str, Session]]:
    """The sections of a page that hold examples, by their title."""
    text = page.read_text()
    name = page.stem if page.parent == ROOT else f"{page.parent.name}/{page.stem}"
    starts = [0, *(found.start() for found in re.finditer(r"^## ", text, re.MULTILINE)), len(text)]
    for start, end in pairwise(starts):
        part = Session(page, text.count("\n", 0, start), text[start:end], IN_PAGES)
        title = part.text.splitlines()[0].lstrip("# ")
        if part.sources():
            yield f"{name}: {title}", part


def own(kind: type) -> dict[str, Any]:
    """What a class defines and its public base classes, which tell it, do not.

    Base classes in the package that the class is the front of are parts of the class.
    """
    parts = [
        base for base in kind.__mro__ if f"{base.__module__}.".startswith(f"{kind.__module__}.")
    ]
    inherited = {name for base in kind.__mro__[:-1] if base not in parts for name in vars(base)}
    members = {name: value for part in reversed(parts) for name, value in vars(part).items()}
    return {name: value for name, value in members.items() if name not in inherited}


@cache
def public() -> dict[str, Any]:
    """The public names, by how users write them: functions, classes, their methods."""
    found: dict[str, Any] = {f"lake.{name}": getattr(lake, name) for name in lake.__all__}
    found |= {f"lake.spark.{name}": getattr(lake.spark, name) for name in lake.spark.__all__}
    for kind in WITH_METHODS:
        found[kind.__name__] = kind
        for name, value in own(kind).items():
            if not name.startswith("_") and callable(getattr(value, "__func__", value)):
                found[f"{kind.__name__}.{name}"] = value
    return found


def docstring(thing: Any) -> Session:
    if isinstance(thing, ModuleType):
        return Session(Path(str(thing.__file__)), 0, thing.__doc__ or "", IN_DOCSTRINGS)
    thing = getattr(thing, "__func__", thing)
    code = getattr(inspect.unwrap(thing), "__code__", None)
    # Of `def`: the docstring begins one below.
    line = code.co_firstlineno if code else inspect.getsourcelines(thing)[1]
    return Session(Path(inspect.getfile(thing)), line, thing.__doc__ or "", IN_DOCSTRINGS)


def docstrings() -> Iterator[tuple[str, Session]]:
    seen: set[int] = set()
    for name, thing in {"lake": lake, **public()}.items():
        if id(thing) not in seen:
            seen.add(id(thing))
            yield name, docstring(thing)


def parameters(named: Iterator[tuple[str, Session]]) -> list[Any]:
    found = []
    for name, session in named:
        marks = [pytest.mark.spark] if session.uses("spark", "SparkSession") else []
        if marks and len(session.sources()) > MANY_EXAMPLES:
            marks.append(pytest.mark.long)
        found.append(pytest.param(session, id=name, marks=marks))
    return found


@pytest.fixture
def run(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Runs sessions one after the other in one namespace."""
    monkeypatch.delenv("PLAKE_CATALOG", raising=False)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}

    def run(*sessions: Session) -> None:
        if any(session.uses("spark", "SparkSession") for session in sessions):
            from pyspark.sql import SparkSession

            # `getOrCreate()` answers this session, as in a notebook, and starts no other one.
            namespace["spark"] = request.getfixturevalue("spark_planner")
            monkeypatch.setattr(SparkSession, "_instantiatedSession", namespace["spark"])
        for session in sessions:
            text = session.text.replace("/data/", f"{tmp_path}/")
            if POSTGRES in text:
                url = request.getfixturevalue("postgres_server").fresh_database()
                text = text.replace(POSTGRES, url)
            for example in session.document(text).examples():
                example.namespace = namespace
                example.evaluate()

    return run


@pytest.mark.parametrize("session", parameters(s for page in PAGES for s in sections(page)))
@pytest.mark.cases(4)
def test_the_examples_of_a_page_run(session: Session, run: Callable[..., None]) -> None:
    run(session)


@pytest.mark.parametrize("session", parameters(docstrings()))
@pytest.mark.cases(4)
def test_the_examples_of_a_docstring_run(session: Session, run: Callable[..., None]) -> None:
    first = docstring(lake)
    run(first, *([session] if session != first else []))


def test_every_public_name_has_an_example() -> None:
    assert [name for name, thing in public().items() if not docstring(thing).sources()] == []


@pytest.mark.parametrize("kind", WITH_METHODS)
def test_each_property_stands_in_an_example_of_its_class(kind: type) -> None:
    sources = "\n".join(
        source
        for name, thing in public().items()
        if name.split(".")[0] == kind.__name__ or thing is kind
        for source in docstring(thing).sources()
    )
    properties = [
        name
        for name, value in own(kind).items()
        if isinstance(value, property) and not name.startswith("_")
    ]
    assert [name for name in properties if not re.search(rf"\.{name}\b", sources)] == []


# --- shell examples ---------------------------------------------------------------


def commands() -> list[str]:
    """The lines of all shell examples of the pages."""
    found = []
    for page in PAGES:
        document = Document(page.read_text(), str(page))
        for language in ("sh", "shell", "bash"):
            for region in CodeBlockParser(language, evaluator=lambda _: None)(document):
                found += str(region.parsed).splitlines()
    return [line.split("#")[0].strip() for line in found if line.strip()]


@pytest.mark.skipif(not (ROOT / "Makefile").exists(), reason="this is not a checkout")
def test_shell_examples_name_what_there_is() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = " ".join(commands()) + " ".join(re.findall(r"`([^`\n]+)`", _all_text()))
    made = re.findall(r"\bmake ([a-z-]+)", said)
    assert made
    assert set(made) <= targets
    for module in re.findall(r"python -m ([a-z_.]+)", said):
        assert importlib.util.find_spec(module), module


@pytest.mark.skipif(not (ROOT / "Makefile").exists(), reason="this is not a checkout")
def test_paths_in_the_pages_exist() -> None:
    folders = "lakehouse_source|spark_conf|integration|tests"
    paths = re.findall(rf"`((?:{folders})/[\w./-]+)`", _all_text())
    paths += re.findall(r"\]\(((?!http)[\w./-]+)\)", (ROOT / "README.md").read_text())
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _all_text() -> str:
    return "\n".join(page.read_text() for page in PAGES)


# --- the test itself ----------------------------------------------------------------


def test_an_example_that_shows_a_wrong_result_would_fail(run: Callable[..., None]) -> None:
    wrong = Session(Path("page"), 0, ">>> 1 + 1\n3\n", IN_DOCSTRINGS)
    with pytest.raises(AssertionError, match="Expected:"):
        run(wrong)
