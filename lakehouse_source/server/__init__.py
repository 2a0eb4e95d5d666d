"""Door. The tables of a catalog over HTTP, as a REST catalog of Apache Iceberg: reads only.

`app` is an ASGI application, for any ASGI server. `plake serve` runs it with uvicorn.

guard        who may ask, how much, and what is logged and counted
connections  how many there are, and how long they may keep the server waiting
routes       the paths, and errors as the specification has them
tables       names, metadata and their ETags; which files a condition may match, and for whom
filters      conditions of Iceberg as those of plake

>>> catalog = lake.open_catalog("sqlite:////data/lake.db")
>>> application = lake.server.app(catalog)   # uvicorn.run(application, port=8181)

Source: Apache Iceberg, REST catalog specification (open-api/rest-catalog-open-api.yaml).
"""

from lakehouse_source.server.routes import app

__all__ = ["app"]
