"""Pure. Hands SQL text to sqlglot, and makes its errors plake's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeAlias

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import ParseError, SqlglotError

from lakehouse_source.errors import InvalidPredicateError
from lakehouse_source.language.syntax.dialect import PlakeSpark
from lakehouse_source.language.syntax.grammar import check_syntax

Tree: TypeAlias = Any  # sqlglot's expressions; its typing differs between versions


@contextmanager
def whole_text(text: str) -> Iterator[None]:
    """Around the reading of a text: nothing of it may be left out or misread.

    The readers go first, because they name what they do not support.

    Raises:
        InvalidPredicateError: it is not one whole expression, or a value in it fails to be read.
    """
    try:
        yield
        check_syntax(text)
    except RecursionError:
        raise InvalidPredicateError(reason="it is nested too deeply", text=text) from None
    # What sqlglot and conversions of literals raise where a text makes no sense.
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as exc:
        check_syntax(text)
        raise InvalidPredicateError(reason=f"it cannot be read: {exc}", text=text) from exc


def tree_of(text: str) -> Tree:
    """The condition or other expression in `text`, as sqlglot reads it.

    Raises:
        InvalidPredicateError: the text is no SQL. The error has the position where sqlglot gave up.
    """
    if not text.strip():
        raise InvalidPredicateError(reason="it is empty", text=text)
    try:
        return sqlglot.parse_one(_single_quoted(text), read=PlakeSpark, into=sql.Condition)
    except ParseError as exc:
        error = exc.errors[0] if exc.errors else {}
        before = error.get("start_context") or ""
        around = before + (error.get("highlight") or "")
        start = text.find(around) if around else -1
        raise InvalidPredicateError(
            reason=(error.get("description") or "it is not a condition").split(" for <class")[0],
            text=text,
            position=None if start < 0 else start + len(before),
        ) from exc
    except SqlglotError as exc:
        raise InvalidPredicateError(
            reason=str(exc).splitlines()[0] if str(exc) else "it is not a condition", text=text
        ) from exc


def _single_quoted(text: str) -> str:
    """The text with each doubled quote inside a string (`'it''s'`) escaped by a backslash.

    Spark 4 reads a doubled quote as one quote, sqlglot as the end of one string and the
    start of another. The length and all positions stay the same.
    """
    if "''" not in text and '""' not in text:
        return text
    characters = list(text)
    tokens = sqlglot.tokenize(text, read="spark")
    for left, right in pairwise(tokens):
        strings = left.token_type.name == right.token_type.name == "STRING"
        if strings and right.start == left.end + 1 and text[left.end] == text[right.start]:
            characters[left.end] = "\\"
    return "".join(characters)
