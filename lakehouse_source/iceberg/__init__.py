"""Verb. Versions of a dataset for readers of Apache Iceberg: metadata and manifests.

types      types and values of Arrow as Iceberg's, and what Iceberg cannot express
manifests  data files and deletion vectors as entries of manifests, and their Avro files
snapshots  shares or writes the manifests of a version, and records them in the catalog
metadata   the table with its schemas, snapshots and references; `metadata.json` beside the data

Source: Apache Iceberg, table specification, formats 2 and 3.
"""
