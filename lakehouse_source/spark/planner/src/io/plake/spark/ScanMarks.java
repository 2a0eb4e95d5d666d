package io.plake.spark;

import java.util.Arrays;
import java.util.Objects;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a scan tells Python about itself: marks in the metadata of the first column.
 *
 * <p>The schema is the one thing that Spark hands to {@code DataSource.reader} for each scan; the
 * options belong to the pickled instance, which all scans of a frame share. The reading side is
 * {@code lakehouse_source/spark/pushdown.py}.
 */
final class ScanMarks {
  private static final String ISOLATED = "plake.isolated";
  private static final String CONDITION = "plake.condition";
  private static final String JOIN_KEYS = "plake.join_keys";
  private static final String ROWS_ONLY = "plake.rows_only";
  private static final String DECIMALS = "plake.decimals";
  private static final String LIMIT = "plake.limit";
  private static final String AGGREGATE = "plake.aggregate";

  private final Metadata[] condition;
  private final Metadata[] joinKeys;
  private final boolean rowsOnly;
  private final int limit;
  private final Metadata aggregate;
  private final Metadata decimals;

  /**
   * @param condition terms, each true of the rows that are wanted ({@link ConditionData})
   * @param rowsOnly the number of rows matters and no value does
   * @param limit that many rows are enough; negative where all are wanted
   * @param aggregate what to answer from the catalog instead of reading, or null
   */
  ScanMarks(Metadata[] condition, boolean rowsOnly, int limit, Metadata aggregate) {
    this(condition, rowsOnly, limit, aggregate, new Metadata[0], null);
  }

  private ScanMarks(
      Metadata[] condition, boolean rowsOnly, int limit, Metadata aggregate,
      Metadata[] joinKeys, Metadata decimals) {
    this.condition = condition;
    this.joinKeys = joinKeys;
    this.rowsOnly = rowsOnly;
    this.limit = limit;
    this.aggregate = aggregate;
    this.decimals = decimals;
  }

  /** The same with terms that only planning may use: they hold for one run of the query. */
  ScanMarks with(Metadata[] joinKeys) {
    return new ScanMarks(condition, rowsOnly, limit, aggregate, joinKeys, decimals);
  }

  /** The same for a scan whose decimals come as longs: by name, the types that they stand for. */
  ScanMarks withDecimals(Metadata decimals) {
    return new ScanMarks(condition, rowsOnly, limit, aggregate, joinKeys, decimals);
  }

  int limit() {
    return limit;
  }

  /** The schema with these marks on its first column. */
  StructType on(StructType schema) {
    StructField[] fields = schema.fields().clone();
    StructField first = fields[0];
    MetadataBuilder marks = new MetadataBuilder().withMetadata(first.metadata());
    marks.putBoolean(ISOLATED, true);
    if (condition.length > 0) {
      marks.putMetadataArray(CONDITION, condition);
    }
    if (joinKeys.length > 0) {
      marks.putMetadataArray(JOIN_KEYS, joinKeys);
    }
    if (rowsOnly) {
      marks.putBoolean(ROWS_ONLY, true);
    }
    if (decimals != null) {
      marks.putMetadata(DECIMALS, decimals);
    }
    if (limit >= 0) {
      marks.putLong(LIMIT, limit);
    }
    if (aggregate != null) {
      marks.putMetadata(AGGREGATE, aggregate);
    }
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), marks.build());
    return new StructType(fields);
  }

  @Override
  public boolean equals(Object other) {
    if (!(other instanceof ScanMarks)) {
      return false;
    }
    ScanMarks that = (ScanMarks) other;
    return Arrays.equals(condition, that.condition)
        && Arrays.equals(joinKeys, that.joinKeys)
        && rowsOnly == that.rowsOnly
        && limit == that.limit
        && Objects.equals(aggregate, that.aggregate)
        && Objects.equals(decimals, that.decimals);
  }

  @Override
  public int hashCode() {
    return Objects.hash(
        Arrays.hashCode(condition), Arrays.hashCode(joinKeys), rowsOnly, limit, aggregate,
        decimals);
  }
}
