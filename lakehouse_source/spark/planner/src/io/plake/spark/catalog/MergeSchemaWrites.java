package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.AppendData;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.OverwriteByExpression;
import org.apache.spark.sql.catalyst.plans.logical.OverwritePartitionsDynamic;
import org.apache.spark.sql.catalyst.plans.logical.Project;
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
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Lets a write with the option {@code mergeSchema} add columns to a table of Spark's catalog.
 *
 * <p>Spark's analyzer compares the columns of a write with those of the table before any rule of an
 * extension can see the table. So {@link Wait} hides that the query is resolved, in a batch before,
 * and {@link Widen} then gives the table the columns that the query has and the table lacks, of
 * structs too. After that Spark does with the write what it does with any: casts, default values,
 * the padding of CHAR. plake's writer, which knows the option too, adds the columns in the commit of
 * the rows.
 */
public final class MergeSchemaWrites {
  private static final String OPTION = "mergeSchema";

  /** No column has this name: what asks for it is not resolved. */
  private static final String NOBODY = "__plake_merge_schema__";

  private MergeSchemaWrites() {}

  private static boolean isAsked(V2WriteCommand write) {
    scala.collection.immutable.Map<String, String> options =
        write instanceof AppendData ? ((AppendData) write).writeOptions()
        : write instanceof OverwriteByExpression ? ((OverwriteByExpression) write).writeOptions()
        : write instanceof OverwritePartitionsDynamic
            ? ((OverwritePartitionsDynamic) write).writeOptions() : null;
    if (options == null) {
      return false;
    }
    Map<String, String> given = CollectionConverters.asJava(options);
    // plake's writer says what is wrong with another value.
    return "true".equalsIgnoreCase(new CaseInsensitiveStringMap(given).get(OPTION));
  }

  private static boolean isWaiting(LogicalPlan query) {
    if (!(query instanceof Project) || ((Project) query).projectList().size() != 1) {
      return false;
    }
    NamedExpression only = ((Project) query).projectList().head();
    return only instanceof UnresolvedAttribute && NOBODY.equals(only.name());
  }

  /** Hides that a query is resolved. Runs before Spark resolves tables. */
  public static final class Wait extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof V2WriteCommand write)) {
        return plan;
      }
      boolean mayBeOurs = write.table() instanceof UnresolvedRelation
          || write.table() instanceof DataSourceV2Relation
              && ((DataSourceV2Relation) write.table()).table() instanceof PlakeTable;
      if (!mayBeOurs || !isAsked(write) || isWaiting(write.query())) {
        return plan;
      }
      return (LogicalPlan) write.withNewQuery(new Project(
          CollectionConverters.asScala(
              List.<NamedExpression>of(UnresolvedAttribute.quoted(NOBODY))).toSeq(),
          write.query()));
    }
  }

  /** Gives the table the columns of the query. */
  public static final class Widen extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      if (!(plan instanceof V2WriteCommand write)) {
        return plan;
      }
      if (!isWaiting(write.query())) {
        return plan;
      }
      // Spark has looked for the table: where there is none, it says so.
      LogicalPlan query = ((Project) write.query()).child();
      V2WriteCommand ready = write.withNewQuery(query);
      if (write.table() instanceof DataSourceV2Relation target && query.resolved()) {
        if (target.table() instanceof PlakeTable) {
          return (LogicalPlan) ready.withNewTable(
              widened(target, query.schema(), write.isByName()));
        }
      }
      return (LogicalPlan) ready;
    }
  }

  private static DataSourceV2Relation widened(
      DataSourceV2Relation target, StructType rows, boolean byName) {
    List<AttributeReference> columns =
        new ArrayList<>(CollectionConverters.asJava(target.output()));
    List<StructField> added = new ArrayList<>();
    for (int at = 0; at < rows.length(); at++) {
      StructField field = rows.fields()[at];
      int place = byName ? indexOf(names(columns), field.name()) : at < columns.size() ? at : -1;
      if (place < 0) {
        added.add(added(field));
      } else {
        AttributeReference column = columns.get(place);
        DataType wide = byName ? widened(column.dataType(), field.dataType())
            : atPlaces(column.dataType(), field.dataType());
        if (!wide.equals(column.dataType())) {
          columns.set(place, column.withDataType(wide));
        }
      }
    }
    for (AttributeReference column : CollectionConverters.asJava(
        DataTypeUtils.toAttributes(new StructType(added.toArray(new StructField[0]))))) {
      if (indexOf(names(columns), column.name()) < 0) { // two of one name: Spark says so
        columns.add(column);
      } else if (!byName) {
        throw Refusal.because("The column " + column.name() + " that is to be added, the number "
            + (columns.size() + 1) + " of the rows, has the name of another column.");
      }
    }
    return target.copy(
        target.table(), CollectionConverters.asScala(columns).toSeq(), target.catalog(),
        target.identifier(), target.options(), target.timeTravelSpec());
  }

  /** A new column: the rows that are there are NULL in it. */
  private static StructField added(StructField field) {
    return new StructField(
        field.name(), field.dataType().asNullable(), true,
        org.apache.spark.sql.types.Metadata.empty());
  }

  private static String[] names(List<AttributeReference> columns) {
    String[] found = new String[columns.size()];
    for (int i = 0; i < found.length; i++) {
      found[i] = columns.get(i).name();
    }
    return found;
  }

  private static int indexOf(String[] names, String name) {
    for (int i = 0; i < names.length; i++) {
      if (SQLConf.get().resolver().apply(names[i], name).equals(Boolean.TRUE)) {
        return i;
      }
    }
    return -1;
  }

  /** The type of a column with the fields of structs that the rows have, and it lacks. */
  private static DataType widened(DataType table, DataType rows) {
    if (table instanceof StructType && rows instanceof StructType) {
      return widened((StructType) table, (StructType) rows);
    }
    if (isLeaf(table) && isLeaf(rows)) {
      return ofValues(table, rows);
    }
    if (table instanceof ArrayType array && rows instanceof ArrayType) {
      return new ArrayType(
          widened(array.elementType(), ((ArrayType) rows).elementType()), array.containsNull());
    }
    if (table instanceof MapType map && rows instanceof MapType) {
      return new MapType(
          widened(map.keyType(), ((MapType) rows).keyType()),
          widened(map.valueType(), ((MapType) rows).valueType()),
          map.valueContainsNull());
    }
    return table;
  }

  /** As {@link #widened}, where Spark takes fields of structs by their places, and adds none. */
  private static DataType atPlaces(DataType table, DataType rows) {
    if (isLeaf(table) && isLeaf(rows)) {
      return ofValues(table, rows);
    }
    if (table instanceof StructType && rows instanceof StructType) {
      StructField[] fields = ((StructType) table).fields().clone();
      StructField[] given = ((StructType) rows).fields();
      for (int i = 0; i < Math.min(fields.length, given.length); i++) {
        fields[i] = typed(fields[i], atPlaces(fields[i].dataType(), given[i].dataType()));
      }
      return new StructType(fields);
    }
    if (table instanceof ArrayType array && rows instanceof ArrayType) {
      return new ArrayType(
          atPlaces(array.elementType(), ((ArrayType) rows).elementType()), array.containsNull());
    }
    if (table instanceof MapType map && rows instanceof MapType given) {
      return new MapType(
          atPlaces(map.keyType(), given.keyType()), atPlaces(map.valueType(), given.valueType()),
          map.valueContainsNull());
    }
    return table;
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
   * <p>Spark would cast what is assigned, and round: a double to a float, a timestamp to a date. plake
   * promotes the column or refuses the write. Casts that keep all of a value, or fail, are Spark's.
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

  private static StructType widened(StructType table, StructType rows) {
    StructType wide = table;
    for (StructField field : rows.fields()) {
      int place = indexOf(wide.fieldNames(), field.name());
      if (place < 0) {
        wide = wide.add(added(field));
      } else {
        StructField[] fields = wide.fields().clone();
        StructField old = fields[place];
        fields[place] = typed(old, widened(old.dataType(), field.dataType()));
        wide = new StructType(fields);
      }
    }
    return wide;
  }
}
