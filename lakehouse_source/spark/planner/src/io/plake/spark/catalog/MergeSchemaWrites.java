package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Waiting;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.FractionalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Lets a write with the option {@code mergeSchema} add columns to a table of Spark's catalog.
 *
 * <p>Spark's analyzer compares the columns of a write with those of the table before any rule of an
 * extension can see the table. So {@link Wait} hides that the query is resolved, in a batch before,
 * and {@link Widen} then gives the table the columns that the query has and the table lacks, of
 * structs too. After that Spark does with the write what it does with any: casts, default values,
 * the padding of CHAR. plake's writer, which knows the option too, adds the columns in the commit
 * of the rows.
 */
public final class MergeSchemaWrites {
  private static final String OPTION = "mergeSchema";

  private static boolean isAsked(V2WriteCommand write) {
    // plake's writer says what is wrong with another value.
    scala.collection.immutable.Seq<Object> parts = ((LogicalPlan) write).productIterator().toSeq();
    return asJava(parts).stream().anyMatch(
        part -> part instanceof scala.collection.immutable.Map<?, ?> options
            && asJava(options).entrySet().stream().anyMatch(
                one -> OPTION.equalsIgnoreCase(String.valueOf(one.getKey()))
                    && "true".equalsIgnoreCase(String.valueOf(one.getValue()))));
  }

  /** Hides that a query is resolved. Runs before Spark resolves tables. */
  public static final class Wait extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof V2WriteCommand write) || !mayBeOurs(write.table())
          || !isAsked(write) || Waiting.is(write.query())) {
        return plan;
      }
      return (LogicalPlan) write.withNewQuery(Waiting.of(write.query()));
    }

    private static boolean mayBeOurs(Object table) {
      return table instanceof UnresolvedRelation
          || table instanceof DataSourceV2Relation known && known.table() instanceof PlakeTable;
    }
  }

  /** Gives the table the columns of the query. */
  public static final class Widen extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof V2WriteCommand write) || !Waiting.is(write.query())) {
        return plan;
      }
      // Spark has looked for the table: where there is none, it says so.
      LogicalPlan query = Waiting.query(write.query());
      V2WriteCommand ready = write.withNewQuery(query);
      if (write.table() instanceof DataSourceV2Relation target && query.resolved()
          && target.table() instanceof PlakeTable) {
        return (LogicalPlan) ready.withNewTable(widened(target, query.schema(), write.isByName()));
      }
      return (LogicalPlan) ready;
    }
  }

  private static DataSourceV2Relation widened(
      DataSourceV2Relation target, StructType rows, boolean byName) {
    List<AttributeReference> columns = new ArrayList<>(asJava(target.output()));
    List<StructField> added = new ArrayList<>();
    for (int at = 0; at < rows.length(); at++) {
      StructField field = rows.fields()[at];
      int place = byName ? indexOf(names(columns), field.name()) : at < columns.size() ? at : -1;
      if (place < 0) {
        added.add(added(field));
      } else {
        AttributeReference column = columns.get(place);
        DataType wide = widened(column.dataType(), field.dataType(), byName);
        if (!wide.equals(column.dataType())) {
          columns.set(place, column.withDataType(wide));
        }
      }
    }
    for (AttributeReference column : asJava(
        DataTypeUtils.toAttributes(new StructType(added.toArray(new StructField[0]))))) {
      if (indexOf(names(columns), column.name()) < 0) { // two of one name: Spark says so
        columns.add(column);
      } else if (!byName) {
        throw Refusal.because("The column " + column.name() + " that is to be added, the number "
            + (columns.size() + 1) + " of the rows, has the name of another column.");
      }
    }
    return Relations.copy(target, columns);
  }

  /** A new column: the rows that are there are NULL in it. */
  private static StructField added(StructField field) {
    return new StructField(
        field.name(), field.dataType().asNullable(), true,
        org.apache.spark.sql.types.Metadata.empty());
  }

  private static String[] names(List<AttributeReference> columns) {
    return columns.stream().map(AttributeReference::name).toArray(String[]::new);
  }

  private static int indexOf(String[] names, String name) {
    return IntStream.range(0, names.length)
        .filter(i -> (Boolean) SQLConf.get().resolver().apply(names[i], name))
        .findFirst().orElse(-1);
  }

  /**
   * The type of a column with the fields of structs that the rows have, and it lacks.
   *
   * @param byName false: Spark takes fields of structs by their places, and adds none
   */
  private static DataType widened(DataType table, DataType rows, boolean byName) {
    if (table instanceof StructType struct && rows instanceof StructType given) {
      return byName ? widened(struct, given) : atPlaces(struct, given);
    }
    if (isLeaf(table) && isLeaf(rows)) {
      return ofValues(table, rows);
    }
    if (table instanceof ArrayType array && rows instanceof ArrayType given) {
      return new ArrayType(
          widened(array.elementType(), given.elementType(), byName), array.containsNull());
    }
    if (table instanceof MapType map && rows instanceof MapType given) {
      return new MapType(
          widened(map.keyType(), given.keyType(), byName),
          widened(map.valueType(), given.valueType(), byName), map.valueContainsNull());
    }
    return table;
  }

  private static StructType atPlaces(StructType table, StructType rows) {
    StructField[] fields = table.fields().clone();
    for (int i = 0; i < Math.min(fields.length, rows.length()); i++) {
      fields[i] = typed(fields[i], widened(fields[i].dataType(), rows.apply(i).dataType(), false));
    }
    return new StructType(fields);
  }

  private static boolean isLeaf(DataType type) {
    return !(type instanceof StructType || type instanceof ArrayType || type instanceof MapType);
  }

  private static StructField typed(StructField field, DataType type) {
    return new StructField(field.name(), type, field.nullable(), field.metadata());
  }

  /**
   * The type in which values go to plake's writer.
   *
   * <p>Spark would cast what is assigned, and round: a double to a float, a timestamp to a date.
   * plake promotes the column or refuses the write. Casts that keep all of a value, or fail, are
   * Spark's.
   */
  private static DataType ofValues(DataType table, DataType rows) {
    boolean isFraction = rows instanceof FractionalType;
    boolean mayRound = isFraction && table instanceof NumericType
        || rows instanceof IntegralType && (table instanceof FloatType || table instanceof DoubleType)
        || table instanceof DateType
            && (rows instanceof TimestampType || rows instanceof TimestampNTZType)
        || table instanceof DayTimeIntervalType && rows instanceof DayTimeIntervalType;
    return mayRound ? rows : table;
  }

  /** Fields that the rows lack are left out: plake's writer makes them NULL, or refuses that. */
  private static StructType widened(StructType table, StructType rows) {
    StructType wide = new StructType(Arrays.stream(table.fields())
        .filter(field -> indexOf(rows.fieldNames(), field.name()) >= 0)
        .toArray(StructField[]::new));
    for (StructField field : rows.fields()) {
      int place = indexOf(wide.fieldNames(), field.name());
      if (place < 0) {
        wide = wide.add(added(field));
      } else {
        StructField[] fields = wide.fields().clone();
        StructField old = fields[place];
        fields[place] = typed(old, widened(old.dataType(), field.dataType(), true));
        wide = new StructType(fields);
      }
    }
    return wide;
  }
}
