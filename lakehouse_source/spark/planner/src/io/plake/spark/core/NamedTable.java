package io.plake.spark.core;

import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table that Spark's catalog has found, at one version. */
public interface NamedTable {
  /**
   * The frame that scans with some options read.
   *
   * @throws org.apache.spark.sql.AnalysisException plake has no such option, undeclared
   */
  PythonDataSourceV2 frameFor(CaseInsensitiveStringMap given);
}
