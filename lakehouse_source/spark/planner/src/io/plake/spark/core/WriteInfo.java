package io.plake.spark.core;

import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The same write with other options. */
public record WriteInfo(LogicalWriteInfo given, CaseInsensitiveStringMap options)
    implements LogicalWriteInfo {
  @Override
  public String queryId() {
    return given.queryId();
  }

  @Override
  public StructType schema() {
    return given.schema();
  }
}
