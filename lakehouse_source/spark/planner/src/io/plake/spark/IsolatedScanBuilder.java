package io.plake.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

/**
 * Collects what one scan needs: the predicates that Spark offers, the columns that it wants, how
 * many rows are enough, and whether the catalog can answer without a scan.
 */
final class IsolatedScanBuilder
    implements ScanBuilder, SupportsPushDownV2Filters, SupportsPushDownRequiredColumns,
        SupportsPushDownAggregates, SupportsPushDownLimit {

  private final PythonDataSourceV2 frame;
  private final String shortName;
  private final StructType full;
  private final CaseInsensitiveStringMap options;
  private final CatalogQuestion question;
  private ConditionData condition;
  private StructType columns;
  private boolean rowsOnly = false;
  private int limit = -1;
  private boolean asked = false;
  private CatalogAnswer known;
  private CatalogAnswer answer;

  /** @param question what the query asks of this relation, if that might be in the catalog */
  IsolatedScanBuilder(
      PythonDataSourceV2 frame, String shortName, StructType full,
      CaseInsensitiveStringMap options, CatalogQuestion question) {
    this.frame = frame;
    this.shortName = shortName;
    this.full = full;
    this.options = options;
    this.question = question;
    this.condition = new ConditionData(full, new Predicate[0]);
    this.columns = full;
  }

  /**
   * Keeps the predicates to prune by and returns all of them: Spark applies each one again.
   *
   * <p>Except where the catalog has answered the query's question: then every row group was found
   * to match wholly or not at all, and there is nothing to apply.
   */
  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    try {
      condition = new ConditionData(full, offered);
      if (question != null && condition.isWhole()) {
        known = ask();
      }
    } catch (LinkageError e) {
      IsolateScans.standAside(IsolateScans.UNKNOWN_SPARK, e);
    }
    return known == null ? offered : new Predicate[0];
  }

  /** Those that the source alone applies. */
  @Override
  public Predicate[] pushedPredicates() {
    return known == null ? new Predicate[0] : condition.used();
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return answerTo(aggregation) != null;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    answer = answerTo(aggregation);
    return answer != null;
  }

  private CatalogAnswer answerTo(Aggregation aggregation) {
    CatalogQuestion pushed = CatalogQuestion.of(aggregation);
    int[] places = question == null || pushed == null ? null : pushed.within(question);
    if (places == null) {
      return null;
    }
    if (!asked && condition.terms().length == 0) {
      known = ask();
    }
    return known == null ? null : known.select(places, pushed.answer(full));
  }

  /** What the catalog knows of the question, under the condition; null where it does not. */
  private CatalogAnswer ask() {
    asked = true; // Spark puts the same aggregation to a builder more than once
    try {
      StructType schema = question.answer(full);
      if (schema == null) {
        return null;
      }
      ScanMarks marks = new ScanMarks(condition.terms(), false, -1, question.data());
      StructType about = question.about(full);
      Seq<byte[]> pickled = new IsolatedSource(frame, full, options, about, marks)
          .getOrCreateReadInfo(shortName, options, marks.on(about), false).partitions();
      return pickled.isEmpty() ? null : CatalogAnswer.decode(pickled.head(), schema);
    } catch (Exception | LinkageError e) { // Scala throws checked exceptions unannounced
      IsolateScans.standAside("the catalog gives no answers to aggregates", e);
      return null;
    }
  }

  /** That many rows are enough, whichever: a hint for planning, Spark cuts the rest off. */
  @Override
  public boolean pushLimit(int rows) {
    limit = rows;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  /**
   * Keeps the columns in the order of the table, structs with the fields that are needed. Where
   * only rows are counted, keeps the narrowest column: Spark's Python protocol cannot carry rows
   * without a column.
   */
  @Override
  public void pruneColumns(StructType required) {
    Map<String, StructField> wanted = new HashMap<>();
    for (StructField field : required.fields()) {
      wanted.put(field.name(), field);
    }
    List<StructField> kept = new ArrayList<>();
    StructField narrowest = full.fields()[0];
    for (StructField field : full.fields()) {
      if (wanted.containsKey(field.name())) {
        kept.add(narrow(field, wanted.get(field.name()).dataType()));
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

  /** A field with what is wanted of it: a part of a struct, or of one in it, and else the whole. */
  private static StructField narrow(StructField field, DataType wanted) {
    if (!(field.dataType() instanceof StructType) || !(wanted instanceof StructType)) {
      return field;
    }
    Map<String, DataType> inner = new HashMap<>();
    for (StructField child : ((StructType) wanted).fields()) {
      inner.put(child.name(), child.dataType());
    }
    List<StructField> kept = new ArrayList<>();
    for (StructField child : ((StructType) field.dataType()).fields()) {
      if (inner.containsKey(child.name())) {
        kept.add(narrow(child, inner.get(child.name())));
      }
    }
    return kept.isEmpty() ? field : new StructField(
        field.name(), new StructType(kept.toArray(new StructField[0])), field.nullable(),
        field.metadata());
  }

  @Override
  public Scan build() {
    if (answer != null) {
      return answer;
    }
    try {
      ScanMarks marks = new ScanMarks(condition.terms(), rowsOnly, limit, null);
      IsolatedSource source = new IsolatedSource(frame, full, options, columns, marks);
      return new IsolatedScan(source, shortName, condition.used());
    } catch (LinkageError e) {
      if (known != null) { // Spark has dropped its filters
        throw e;
      }
      IsolateScans.standAside(IsolateScans.UNKNOWN_SPARK, e);
      return IsolateScans.IsolatedTable.stock(frame, shortName, full, options).build();
    }
  }
}
