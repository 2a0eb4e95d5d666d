package io.plake.spark.scan;

import io.plake.spark.core.Envelope;
import io.plake.spark.core.PythonTask;
import io.plake.spark.core.Vocabulary;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * All that one scan pushes down to Python.
 *
 * <p>It travels as a request in the metadata of the first column. The schema is the only thing that
 * Spark hands to {@code DataSource.reader} for each scan: options belong to the pickled instance,
 * which all scans of a frame share. The reading side is {@code Pushdown} in
 * {@code lakehouse_source/spark/reading/pushdown.py}; the names are those of {@link Vocabulary}.
 */
final class Pushdown implements Cloneable {
  private static final int NO_LIMIT = -1;

  /** The columns to read, in the order of the table. */
  StructType columns;

  private ConditionData condition;
  private Metadata[] joinKeys = new Metadata[0];
  private boolean rowsOnly = false;
  private int limit = NO_LIMIT;
  private Metadata aggregate;
  private Metadata decimals;
  private Map<String, String> metadata = Map.of();
  private String reader;
  private boolean joined = false;

  private Pushdown(StructType columns, ConditionData condition) {
    this.columns = columns;
    this.condition = condition;
  }

  /** The given columns of a table, and the rows of conditions as {@link ConditionData} has them. */
  static Pushdown of(StructType table, String expressions) {
    return new Pushdown(table, new ConditionData(table, new Predicate[0], expressions));
  }

  /** The same with something changed. What is made is never changed. */
  private Pushdown with(Consumer<Pushdown> change) {
    try {
      Pushdown found = (Pushdown) clone();
      change.accept(found);
      return found;
    } catch (CloneNotSupportedException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * @param rowsOnly only the number of rows matters, no value does
   * @param metadata those of the columns that tell where a row is stored, with plake's names
   */
  Pushdown withColumns(StructType columns, boolean rowsOnly, Map<String, String> metadata) {
    return with(found -> {
      found.columns = columns;
      found.rowsOnly = rowsOnly;
      found.metadata = metadata;
    });
  }

  /** @param condition is true of every row that is wanted */
  Pushdown withCondition(ConditionData condition) {
    return with(found -> found.condition = condition);
  }

  /** @param rows so many rows are enough */
  Pushdown withLimit(int rows) {
    return with(found -> found.limit = rows);
  }

  /** @param terms only planning may use them: they hold for one run of the query */
  Pushdown withJoinKeys(Metadata[] terms) {
    return with(found -> found.joinKeys = terms);
  }

  /**
   * The same scan, with requests for planning.
   *
   * @param reader who should read it, one of {@link Vocabulary.Reader}; null: this is not asked
   * @param joined by which columns keys of a join may prune it
   */
  Pushdown withRequest(String reader, boolean joined) {
    return with(found -> {
      found.reader = reader;
      found.joined = joined;
    });
  }

  /** The same condition with a request for the catalog, instead of a scan. */
  Pushdown asking(AggregateRequest request, StructType about) {
    Pushdown found = new Pushdown(about, condition);
    found.aggregate = request.data();
    return found;
  }

  /** With longs for the decimals that a long can hold; null where there are none. */
  Pushdown withLongs() {
    StructField[] fields = columns.fields().clone();
    MetadataBuilder types = new MetadataBuilder();
    boolean any = false;
    for (int i = 0; i < fields.length; i++) {
      StructField field = fields[i];
      if (LongDecimals.fits(field.dataType())) {
        DecimalType type = (DecimalType) field.dataType();
        types.putLongArray(field.name(), new long[] {type.precision(), type.scale()});
        fields[i] = new StructField(
            field.name(), DataTypes.LongType, field.nullable(), field.metadata());
        any = true;
      }
    }
    return !any ? null : with(found -> {
      found.columns = new StructType(fields);
      found.decimals = types.build();
    });
  }

  /** Whether no value of a row matters. */
  boolean isRowsOnly() {
    return rowsOnly;
  }

  ConditionData condition() {
    return condition;
  }

  /** The limit as {@code explain()} shows it; empty where there is none. */
  String limit() {
    return limit == NO_LIMIT ? "" : ", Limit: " + limit;
  }

  /** The columns with the request on the first of them. */
  StructType marked() {
    StructField[] fields = columns.fields().clone();
    StructField first = fields[0];
    MetadataBuilder marks = new MetadataBuilder();
    marks.putLong(
        Vocabulary.Mark.PARALLELISM, SparkSession.active().sparkContext().defaultParallelism());
    if (condition.terms().length > 0) {
      marks.putMetadataArray(Vocabulary.Mark.CONDITION, condition.terms());
    }
    if (joinKeys.length > 0) {
      marks.putMetadataArray(Vocabulary.Mark.JOIN_KEYS, joinKeys);
    }
    if (rowsOnly) {
      marks.putBoolean(Vocabulary.Mark.ROWS_ONLY, true);
    }
    if (decimals != null) {
      marks.putMetadata(Vocabulary.Mark.DECIMALS, decimals);
    }
    if (limit != NO_LIMIT) {
      marks.putLong(Vocabulary.Mark.LIMIT, limit);
    }
    if (aggregate != null) {
      marks.putMetadata(Vocabulary.Mark.AGGREGATE, aggregate);
    }
    if (!metadata.isEmpty()) {
      MetadataBuilder names = new MetadataBuilder();
      metadata.forEach(names::putString);
      marks.putMetadata(Vocabulary.Mark.METADATA, names.build());
    }
    if (reader != null) {
      marks.putString(Vocabulary.Mark.READER, reader);
      if (PythonTask.executorsHaveJar()) {
        marks.putBoolean(Vocabulary.Mark.CHANGED_FILES, true);
      }
    }
    if (joined) {
      marks.putBoolean(Vocabulary.Mark.JOINED, true);
    }
    Metadata asking = new MetadataBuilder().withMetadata(first.metadata())
        .putString(Vocabulary.Envelope.NAME, Envelope.request(marks.build().json())).build();
    fields[0] = new StructField(first.name(), first.dataType(), first.nullable(), asking);
    return new StructType(fields);
  }

  /** Tells whether both ask for the same rows and columns. */
  @Override
  public boolean equals(Object other) {
    return other instanceof Pushdown that && columns.equals(that.columns)
        && Arrays.equals(condition.terms(), that.condition.terms())
        && Arrays.equals(joinKeys, that.joinKeys)
        && rowsOnly == that.rowsOnly
        && limit == that.limit
        && Objects.equals(aggregate, that.aggregate)
        && Objects.equals(decimals, that.decimals)
        && metadata.equals(that.metadata)
        && Objects.equals(reader, that.reader) && joined == that.joined;
  }

  @Override
  public int hashCode() {
    return Objects.hash(columns, Arrays.hashCode(condition.terms()), rowsOnly, limit);
  }
}
