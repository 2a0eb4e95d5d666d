"""The page of functions says what the table of functions says."""

from __future__ import annotations

from integration.function_table import PAGE, page
from lakehouse_source.language.functions import FUNCTIONS


def test_the_page_lists_the_functions_that_there_are() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "run python -m integration.function_table"
    assert all(f"`{name}(" in text for name in FUNCTIONS if " " not in name)
