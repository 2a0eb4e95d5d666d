from importlib.metadata import version as _version

version = _version("plake")
