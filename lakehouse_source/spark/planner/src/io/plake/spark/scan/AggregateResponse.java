package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.ReaderResponse.ScanStatistics;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** Rows that the catalog answered: a scan without tasks. */
public final class AggregateResponse implements LocalScan, SupportsReportStatistics {
  private static final Map<DataType, Function<String, Object>> VALUES = Map.of(
      DataTypes.LongType, Long::valueOf, DataTypes.TimestampType, Long::valueOf,
      DataTypes.TimestampNTZType, Long::valueOf, DataTypes.IntegerType, Integer::valueOf,
      DataTypes.DateType, Integer::valueOf, DataTypes.ShortType, Short::valueOf,
      DataTypes.ByteType, Byte::valueOf, DataTypes.BooleanType, Boolean::valueOf,
      DataTypes.DoubleType, Double::valueOf,
      DataTypes.FloatType, text -> Double.valueOf(text).floatValue());

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
    var body = Envelope.responseIn(partition);
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
    return new AggregateResponse(selected, Arrays.stream(cells)
        .map(row -> Arrays.stream(places).mapToObj(place -> row[place]).toArray())
        .toArray(Object[][]::new));
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public InternalRow[] rows() {
    return Arrays.stream(cells).map(GenericInternalRow::new).toArray(InternalRow[]::new);
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
    if (text == null || VALUES.containsKey(type)) {
      return text == null ? null : VALUES.get(type).apply(text);
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
