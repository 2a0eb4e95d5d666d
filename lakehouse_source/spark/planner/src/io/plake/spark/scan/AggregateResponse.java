package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Vocabulary;
import java.math.BigDecimal;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows that the catalog answered: a scan without tasks. */
public final class AggregateResponse implements LocalScan, SupportsReportStatistics {
  private final StructType schema;
  private final Object[][] cells;

  /** @param cells the values of each row, as Spark holds them */
  public AggregateResponse(StructType schema, Object[][] cells) {
    this.schema = schema;
    this.cells = cells;
  }

  /**
   * Reads what Python made in the place of partitions: rows of texts, or nothing, as of metadata
   * tables and changes.
   *
   * @return null where the catalog has no answer
   */
  static AggregateResponse of(byte[] partition, StructType schema) {
    Map<?, ?> body = Envelope.responseIn(partition);
    List<?> rows = body == null ? null : (List<?>) body.get(Vocabulary.ScanResponse.ROWS);
    if (rows == null) {
      return null;
    }
    Object[][] cells = new Object[rows.size()][schema.length()];
    for (int i = 0; i < cells.length; i++) {
      List<?> row = (List<?>) rows.get(i);
      for (int j = 0; j < schema.length(); j++) {
        cells[i][j] = value((String) row.get(j), schema.fields()[j].dataType());
      }
    }
    return new AggregateResponse(schema, cells);
  }

  /** The same rows with some of the columns, in another order. */
  AggregateResponse select(int[] places, StructType selected) {
    Object[][] chosen = new Object[cells.length][places.length];
    for (int i = 0; i < cells.length; i++) {
      for (int j = 0; j < places.length; j++) {
        chosen[i][j] = cells[i][places[j]];
      }
    }
    return new AggregateResponse(selected, chosen);
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public InternalRow[] rows() {
    InternalRow[] rows = new InternalRow[cells.length];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = new GenericInternalRow(cells[i]);
    }
    return rows;
  }

  @Override
  public Statistics estimateStatistics() {
    return ScanStatistics.ofRows(cells.length, schema);
  }

  @Override
  public String description() {
    return "plake, answered from the catalog: " + schema.simpleString();
  }

  /** The value that Spark holds, from a text in the form of its {@link Vocabulary.Type}. */
  public static Object value(String text, DataType type) {
    if (text == null) {
      return null;
    }
    if (type instanceof LongType || type instanceof TimestampType
        || type instanceof TimestampNTZType) {
      return Long.valueOf(text);
    }
    if (type instanceof IntegerType || type instanceof DateType) {
      return Integer.valueOf(text);
    }
    if (type instanceof ShortType) {
      return Short.valueOf(text);
    }
    if (type instanceof ByteType) {
      return Byte.valueOf(text);
    }
    if (type instanceof BooleanType) {
      return Boolean.valueOf(text);
    }
    if (type instanceof DoubleType) {
      return Double.valueOf(text);
    }
    if (type instanceof FloatType) {
      return Double.valueOf(text).floatValue();
    }
    if (type instanceof DecimalType decimal) {
      return Decimal.apply(new BigDecimal(text), decimal.precision(), decimal.scale());
    }
    if (type instanceof StringType) {
      return UTF8String.fromString(text);
    }
    throw new IllegalStateException("no form for " + type);
  }
}
