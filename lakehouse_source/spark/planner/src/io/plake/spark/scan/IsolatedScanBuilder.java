package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.Feature;
import io.plake.spark.core.Relations;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
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
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Some;

/**
 * Collects what one scan needs: the predicates that Spark offers, the columns that it wants, how
 * many rows are enough, and whether the catalog can answer without a scan.
 */
public final class IsolatedScanBuilder
    implements ScanBuilder, SupportsPushDownV2Filters, SupportsPushDownRequiredColumns,
        SupportsPushDownAggregates, SupportsPushDownLimit {

  /** Settings that change how Spark reads Parquet, with the value that plake's rows need. */
  private static final Map<String, String> REQUIRED = Map.of(
      "spark.sql.parquet.enableVectorizedReader", "true",
      "spark.sql.parquet.enableNestedColumnVectorizedReader", "true",
      "spark.sql.parquet.binaryAsString", "false",
      "spark.sql.parquet.int96AsTimestamp", "true",
      "spark.sql.parquet.inferTimestampNTZ.enabled", "true",
      "spark.sql.parquet.fieldId.read.enabled", "false",
      "spark.sql.parquet.recordLevelFilter.enabled", "false",
      "spark.sql.legacy.parquet.nanosAsLong", "false");

  private final PythonDataSourceV2 frame;
  private final StructType full;
  private final CaseInsensitiveStringMap options;
  private final AggregateRequest request;
  private final Map<String, StructField> hidden;
  private final String expressions;
  private Pushdown pushdown;
  private boolean requested = false;
  private AggregateResponse known;
  private AggregateResponse response;

  /**
   * @param request what the query asks of this relation, if that might be in the catalog
   * @param hidden columns that tell where a row is stored, by plake's names
   */
  public IsolatedScanBuilder(
      PythonDataSourceV2 frame, StructType full, CaseInsensitiveStringMap options,
      AggregateRequest request, Map<String, StructField> hidden) {
    this.frame = frame;
    this.full = full;
    this.options = options;
    this.request = request;
    this.hidden = hidden;
    this.expressions = SealedOptions.marked(options, Vocabulary.Option.CONDITIONS);
    this.pushdown = Pushdown.of(full, expressions);
  }

  /**
   * Keeps the predicates to prune by and returns all of them: Spark applies each one again.
   *
   * <p>Returns none where the catalog has answered the query's request: then all rows of each row
   * group match or none of them does, and Spark has nothing to apply.
   */
  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    try {
      pushdown = pushdown.withCondition(new ConditionData(full, offered, expressions));
      if (request != null && pushdown.condition().isWhole()) {
        known = request();
      }
    } catch (LinkageError e) {
      Feature.PUSHDOWN.failed(e);
    }
    return known == null ? offered : new Predicate[0];
  }

  /** The predicates that Spark does not apply again. */
  @Override
  public Predicate[] pushedPredicates() {
    return known == null ? new Predicate[0] : pushdown.condition().predicates();
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return answerTo(aggregation) != null;
  }

  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    response = answerTo(aggregation);
    return response != null;
  }

  private AggregateResponse answerTo(Aggregation aggregation) {
    AggregateRequest pushed = AggregateRequest.of(aggregation);
    int[] places = request == null || pushed == null ? null : pushed.within(request);
    if (places == null) {
      return null;
    }
    if (!requested && pushdown.condition().terms().length == 0) {
      known = request();
    }
    return known == null ? null : known.select(places, pushed.response(full));
  }

  /** The catalog's answer to the request under the condition; null where it has none. */
  private AggregateResponse request() {
    requested = true; // Spark puts the same aggregation to a builder more than once
    try {
      StructType schema = request.response(full);
      if (schema == null || !mayKnowGroups()) {
        return null;
      }
      Pushdown asking = pushdown.asking(request, request.about(full));
      var pickled = new IsolatedSource(frame, full, options, asking).partitions();
      return pickled.isEmpty() ? null : AggregateResponse.of(pickled.head(), schema);
    } catch (Exception | LinkageError e) { // Scala throws checked exceptions unannounced
      Feature.AGGREGATES.failed(e);
      return null;
    }
  }

  /** The catalog knows groups by partition columns only, which the frame's instance tells. */
  private boolean mayKnowGroups() {
    if (!request.hasGroups()) {
      return true;
    }
    byte[] instance;
    synchronized (frame) {
      instance = frame.getOrCreateDataSourceInPython(
          Relations.SOURCE, options, new Some<>(full)).dataSource();
    }
    Map<?, ?> told = Envelope.responseIn(instance);
    return told == null
        || !(told.get(Vocabulary.ScanResponse.PARTITION_BY) instanceof List<?> columns)
        || request.isGroupedBy(columns);
  }

  /** Any so many rows are enough. Only a hint for planning: Spark drops the rows beyond. */
  @Override
  public boolean pushLimit(int rows) {
    pushdown = pushdown.withLimit(rows);
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  /**
   * Keeps the columns that are required, in the order of the table, and of structs the fields that
   * are. Columns that tell where a row is stored come last. Where Spark only counts rows, keeps
   * the narrowest column: Spark's Python protocol cannot carry rows without a column.
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
    Map<String, String> metadata = new LinkedHashMap<>();
    hidden.forEach((name, field) -> {
      if (wanted.containsKey(field.name())) {
        kept.add(field);
        metadata.put(field.name(), name);
      }
    });
    boolean rowsOnly = kept.isEmpty();
    if (rowsOnly) {
      kept.add(narrowest);
    }
    pushdown = pushdown.withColumns(
        new StructType(kept.toArray(new StructField[0])), rowsOnly, metadata);
  }

  /** The conditions that are true of every row that is wanted. */
  public Metadata[] condition() {
    return pushdown.condition().terms();
  }

  /** A field with the parts that are wanted, where it is a struct; any other field as it is. */
  private static StructField narrow(StructField field, DataType wanted) {
    if (!(field.dataType() instanceof StructType all) || !(wanted instanceof StructType some)) {
      return field;
    }
    Map<String, DataType> inner = new HashMap<>();
    for (StructField child : some.fields()) {
      inner.put(child.name(), child.dataType());
    }
    List<StructField> kept = new ArrayList<>();
    for (StructField child : all.fields()) {
      if (inner.containsKey(child.name())) {
        kept.add(narrow(child, inner.get(child.name())));
      }
    }
    return kept.isEmpty() ? field : new StructField(
        field.name(), new StructType(kept.toArray(new StructField[0])), field.nullable(),
        field.metadata());
  }

  /**
   * The reader that the session wants; null where it is Python without a request: for rows that
   * are not looked at, for places of rows, and where Spark has dropped its filters.
   */
  private String reader() {
    if (known != null || pushdown.isRowsOnly()) {
      return null;
    }
    try {
      return setting();
    } catch (LinkageError e) {
      Feature.READER.failed(e);
      return null;
    }
  }

  /** The session's choice, or null where it is Python's reader in any case. */
  private static String setting() {
    SQLConf conf = SQLConf.get();
    String wanted = conf.getConfString(Vocabulary.Setting.READER, Vocabulary.Reader.AUTO)
        .trim().toLowerCase(Locale.ROOT);
    if (wanted.equals(Vocabulary.Reader.PYTHON)) {
      return null;
    }
    if (!wanted.equals(Vocabulary.Reader.AUTO) && !wanted.equals(Vocabulary.Reader.SPARK)) {
      Feature.READER.failed(Vocabulary.Setting.READER + " is " + wanted);
      return null;
    }
    boolean isAsRequired = REQUIRED.entrySet().stream().allMatch(one ->
        one.getValue().equalsIgnoreCase(conf.getConfString(one.getKey(), one.getValue())));
    return isAsRequired ? wanted : null;
  }

  @Override
  public Scan build() {
    if (response != null) {
      return response;
    }
    try {
      return new IsolatedScan(new IsolatedSource(frame, full, options, pushdown, reader()));
    } catch (LinkageError e) {
      if (known != null) { // Spark has dropped its filters
        throw e;
      }
      Feature.PUSHDOWN.failed(e);
      return new PythonTable(frame, Relations.SOURCE, full).newScanBuilder(options).build();
    }
  }
}
