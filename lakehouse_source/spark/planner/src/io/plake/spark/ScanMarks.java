package io.plake.spark;

import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a scan tells Python about itself: marks in the metadata of the first column.
 *
 * <p>The schema is the one thing that Spark hands to {@code DataSource.reader} for each scan; the
 * options belong to the pickled instance, which all scans of a frame share. The reading side is
 * {@code lakehouse_source/spark/isolation.py}.
 */
final class ScanMarks {
  private static final String ISOLATED = "plake.isolated";
  private static final String FILTERS_FOLLOW = "plake.filters_follow";
  private static final String ROWS_ONLY = "plake.rows_only";

  private ScanMarks() {}

  /**
   * Marks a schema as that of an isolated scan.
   *
   * @param filtersFollow Python's {@code pushFilters} will be called before {@code partitions}
   * @param rowsOnly the number of rows matters and no value does
   */
  static StructType mark(StructType schema, boolean filtersFollow, boolean rowsOnly) {
    StructField[] fields = schema.fields().clone();
    StructField first = fields[0];
    MetadataBuilder marks = new MetadataBuilder().withMetadata(first.metadata());
    marks.putBoolean(ISOLATED, true);
    if (filtersFollow) {
      marks.putBoolean(FILTERS_FOLLOW, true);
    }
    if (rowsOnly) {
      marks.putBoolean(ROWS_ONLY, true);
    }
    Metadata metadata = marks.build();
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), metadata);
    return new StructType(fields);
  }
}
