package io.plake.spark.core;

import java.util.Map;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table that Spark's catalog has found, at one version. */
public interface NamedTable {
  /**
   * The frame that scans with some options read.
   *
   * @throws org.apache.spark.sql.AnalysisException plake has no such option, undeclared
   */
  PythonDataSourceV2 frameFor(CaseInsensitiveStringMap given);

  /** The columns that tell where a row is stored, by plake's names. */
  Map<String, StructField> hidden();
}
