package io.plake.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.Not;
import org.apache.spark.sql.sources.Or;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what one scan needs: the filters that Spark offers and the columns that it wants. */
final class IsolatedScanBuilder
    implements ScanBuilder, SupportsPushDownFilters, SupportsPushDownRequiredColumns {

  private final PythonDataSourceV2 frame;
  private final String shortName;
  private final StructType full;
  private final CaseInsensitiveStringMap options;
  private StructType columns;
  private boolean rowsOnly = false;
  private Filter[] filters = new Filter[0];

  IsolatedScanBuilder(
      PythonDataSourceV2 frame, String shortName, StructType full,
      CaseInsensitiveStringMap options) {
    this.frame = frame;
    this.shortName = shortName;
    this.full = full;
    this.options = options;
    this.columns = full;
  }

  /** Keeps the filters to prune by and returns all of them: Spark applies each one again. */
  @Override
  public Filter[] pushFilters(Filter[] offered) {
    filters = Arrays.stream(offered).filter(f -> !isCompound(f)).toArray(Filter[]::new);
    return offered;
  }

  /** None, for none is left to the source alone. */
  @Override
  public Filter[] pushedFilters() {
    return new Filter[0];
  }

  /** Spark's Python protocol has conditions on one column only. */
  private static boolean isCompound(Filter filter) {
    return filter instanceof And || filter instanceof Or
        || filter instanceof Not && isCompound(((Not) filter).child());
  }

  /**
   * Keeps whole top-level columns, in the order of the table. Where only rows are counted, keeps
   * the narrowest column: Spark's Python protocol cannot carry rows without a column.
   */
  @Override
  public void pruneColumns(StructType required) {
    Set<String> names = new HashSet<>(Arrays.asList(required.fieldNames()));
    List<StructField> kept = new ArrayList<>();
    StructField narrowest = full.fields()[0];
    for (StructField field : full.fields()) {
      if (names.contains(field.name())) {
        kept.add(field);
      }
      if (field.dataType().defaultSize() < narrowest.dataType().defaultSize()) {
        narrowest = field;
      }
    }
    rowsOnly = kept.isEmpty();
    if (rowsOnly) {
      kept.add(narrowest);
    }
    columns = new StructType(kept.toArray(new StructField[0]));
  }

  @Override
  public Scan build() {
    try {
      IsolatedSource source = new IsolatedSource(frame, full, columns, filters, options);
      StructType marked = ScanMarks.mark(columns, false, rowsOnly);
      Scan stock = new PythonScanBuilder(source, shortName, marked, options).build();
      return new IsolatedScan(stock, source);
    } catch (LinkageError e) {
      IsolateScans.standAside(IsolateScans.UNKNOWN_SPARK, e);
      return IsolateScans.IsolatedTable.stock(frame, shortName, full, options).build();
    }
  }
}
