"""Verb. Versions of a dataset for readers of Apache Iceberg: metadata and manifests.

types      Arrow types as Iceberg's, and what Iceberg cannot express
values     values of bounds and partitions as Iceberg stores them
avro       the Avro schemas of manifests and manifest lists
entries    data files and deletion vectors as entries of manifests
ranges     which manifests of an earlier version a version shares
snapshots  writes the manifests of a version, and records them in the catalog
metadata   the table with its schemas, snapshots and references
export     `metadata.json` beside the data, for readers without a server

Source: Apache Iceberg, table specification, formats 2 and 3.
"""
