package io.plake.spark.core;

import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The same write with other options. */
public final class WriteInfo implements LogicalWriteInfo {
  private final LogicalWriteInfo given;
  private final CaseInsensitiveStringMap options;

  public WriteInfo(LogicalWriteInfo given, CaseInsensitiveStringMap options) {
    this.given = given;
    this.options = options;
  }

  @Override
  public CaseInsensitiveStringMap options() {
    return options;
  }

  @Override
  public String queryId() {
    return given.queryId();
  }

  @Override
  public StructType schema() {
    return given.schema();
  }
}
