package io.plake.spark.core;

/** Marks what Spark sees of the target of a DELETE, UPDATE or MERGE. */
public interface StatementTarget {}
