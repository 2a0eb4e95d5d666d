package io.plake.spark.core;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A table that scans a frame by plake's own scans. Equal to any other of its class and frame. */
public abstract class FrameTable extends PythonTable {
  protected final PythonDataSourceV2 frame;

  /** As scans read it: texts of CHAR and VARCHAR columns are strings. */
  protected final StructType schema;

  /** The columns that tell where a row is stored, by plake's names. */
  protected final Map<String, StructField> hidden;

  protected FrameTable(
      PythonDataSourceV2 frame, StructType schema, Map<String, StructField> hidden) {
    super(frame, Relations.SOURCE, schema);
    this.frame = frame;
    this.schema = schema;
    this.hidden = hidden;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  /** The columns that tell where a row is stored, by plake's names. */
  public Map<String, StructField> hidden() {
    return hidden;
  }

  public MetadataColumn[] metadataColumns() {
    return HiddenColumns.columns(hidden);
  }

  /** Spark finds a cached plan by the equality of its tables. */
  @Override
  public boolean equals(Object other) {
    return other instanceof FrameTable that && that.getClass() == getClass()
        && that.frame == frame && that.schema.equals(schema);
  }

  @Override
  public int hashCode() {
    return System.identityHashCode(frame);
  }
}
