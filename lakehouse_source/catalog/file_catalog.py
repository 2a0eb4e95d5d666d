"""What the catalogs in one local file have in common: their path, and who made its tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import ClassVar
from urllib.parse import quote

from lakehouse_source.catalog import migrations
from lakehouse_source.catalog.base import Connection, PooledCatalog
from lakehouse_source.errors import InvalidOptionError

BUSY_SECONDS = 30.0


class FileCatalog(PooledCatalog[Connection]):
    """A catalog in a database file at an absolute path.

    `dataset` names the dataset for which the catalog is opened, for messages.
    `make_folder` lets the file's folder be made with it.
    """

    scheme: ClassVar[str]
    absent = "there is no such file"

    def __init__(
        self,
        path: str,
        *,
        create: bool = True,
        dataset: str | None = None,
        make_folder: bool = False,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        if not os.path.isabs(path):
            raise InvalidOptionError(
                option="catalog",
                value=path,
                reason=f"needs an absolute path: {self.scheme}:///folder/catalog.db.",
            )
        url = f"{self.scheme}://{quote(path, safe='/')}"
        super().__init__(url, url, create=create, dataset=dataset)
        self.path = path
        self._make_folder = make_folder
        self._busy_seconds = busy_seconds
        if not create:
            self._check_file()

    def _check_file(self) -> bool:
        """Tell whether the file is there already. Where it is not, it may be made now.

        Raises:
            CatalogUnavailableError, DatasetNotFoundError: there is no file and none may be made.
        """
        try:
            os.stat(self.path)
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise self._unavailable(f"it cannot be read: {exc.strerror}") from exc
        else:
            return True
        if not self._create:
            raise self._missing(self.absent)
        folder = os.path.dirname(self.path)
        if self._make_folder:
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as exc:
                raise self._unavailable(f"it cannot be created: {exc.strerror}") from exc
        elif not os.path.isdir(folder):
            raise self._unavailable(f"its folder {folder} does not exist. Create it first")
        return False

    def _refuse_foreign_tables(self, names: Iterable[str]) -> None:
        """Leave a database alone that has tables of another program under plake's names."""
        taken = sorted(set(names) & set(migrations.TABLES))
        if taken:
            raise self._unavailable(
                f"the database has a table {taken[0]!r} that is not plake's. Use another file"
            )
