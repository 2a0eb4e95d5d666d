package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.ComputedColumns.ConstantDefaults;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.QueryVersions;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.ConditionData;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.ClusterByTransform;
import org.apache.spark.sql.connector.expressions.IdentityTransform;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.CharType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.VarcharType;

/** Writes what Spark asks of a table as requests for plake. */
public final class TableRequests {
  /** A table that is created; @param staged its rows come later. */
  public static ObjectNode create(Identifier table, TableInfo info, boolean staged) {
    return create(table, info, info.properties(), staged);
  }

  /** The same with other properties: each Spark has another builder of {@code TableInfo}. */
  public static ObjectNode create(
      Identifier table, TableInfo info, Map<String, String> properties, boolean staged) {
    Column[] columns = info.columns();
    ObjectNode request = Channel.about(
        staged ? Vocabulary.RequestKind.STAGE : Vocabulary.RequestKind.CREATE, table);
    TableConstraints.put(request, info.constraints());
    StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
    request.put(Vocabulary.RequestKey.SCHEMA, json(schema));
    ComputedColumns.put(request, columns);
    var defaults = request.putArray(Vocabulary.RequestKey.DEFAULTS);
    for (Column column : columns) {
      if (column.defaultValue() == null) {
        continue;
      }
      // Columns of a query bring the text of a default along, and no value: nobody declared it.
      boolean hasValue = column.defaultValue().getValue() != null;
      String sql = column.defaultValue().getSql();
      if ((hasValue || !staged) && ConstantDefaults.changes(sql)) {
        defaults.add(expression(column.name(), sql));
      } else if (hasValue) {
        defaults.add(value(column.name(), column.dataType(), column.defaultValue().getValue()));
      }
    }
    List<Transform> identities = new ArrayList<>();
    var clustered = request.putArray(Vocabulary.RequestKey.CLUSTER_BY);
    for (Transform transform : info.partitions()) {
      if (transform instanceof ClusterByTransform) {
        put(clustered, transform.references());
      } else {
        identities.add(transform);
      }
    }
    var partitionBy = request.putArray(Vocabulary.RequestKey.PARTITION_BY);
    columns(identities.toArray(new Transform[0])).forEach(partitionBy::add);
    put(request, properties);
    return request;
  }

  /**
   * The columns of a table like another one.
   *
   * <p>Spark takes the value of a default from another entry of the metadata than its text.
   */
  public static Column[] columnsLike(Table source, TableInfo requested) {
    if (!(source instanceof PlakeTable table)) {
      return requested.columns();
    }
    StructType found = new StructType();
    for (var field : table.schema().fields()) {
      var text = field.getCurrentDefaultValue();
      found = found.add(text.isEmpty() ? field : field.withExistenceDefaultValue(text.get()));
    }
    Column[] columns = CatalogV2Util.structTypeToV2Columns(found, false);
    for (int i = 0; i < columns.length; i++) {
      columns[i] = ComputedColumns.shown(columns[i], table.computed(), true, false);
    }
    return columns;
  }

  /** The properties of a table like another one: those of a table of plake, and what is asked. */
  public static Map<String, String> propertiesLike(Table source, TableInfo requested) {
    Map<String, String> found = new HashMap<>();
    if (source instanceof PlakeTable) {
      found.putAll(SessionEntry.withoutOptions(source.properties()));
      found.keySet().removeAll(List.of(
          TableCatalog.PROP_LOCATION, TableCatalog.PROP_OWNER, TableCatalog.PROP_EXTERNAL,
          TableCatalog.PROP_IS_MANAGED_LOCATION));
    }
    found.putAll(requested.properties());
    found.remove(TableCatalog.PROP_PROVIDER); // of the other table
    return found;
  }

  public static void put(ObjectNode request, Map<String, String> properties) {
    ObjectNode texts = request.putObject(Vocabulary.RequestKey.PROPERTIES);
    properties.forEach(texts::put);
  }

  /** A type as PySpark reads it, whose CHAR and VARCHAR have no collation: it would be lost. */
  private static String json(DataType type) {
    if (type.existsRecursively(part -> (part instanceof CharType || part instanceof VarcharType)
        && part.simpleString().matches(".* collate (?!UTF8_BINARY$).*"))) {
      throw Refusal.because("plake cannot make a column of type " + type.simpleString() + ": in a"
          + " table's columns a text has a length or a collation. Use STRING COLLATE, or leave the"
          + " collation out.");
    }
    return type.json();
  }

  private static void put(ArrayNode clustered, NamedReference[] columns) {
    for (NamedReference column : columns) {
      clustered.add(String.join(".", column.fieldNames()));
    }
  }

  /** The value of a column, as a literal of a condition. */
  private static String value(String column, DataType type, Literal<?> value) {
    // Texts with a length or a collation are stored as texts.
    DataType stored = type instanceof StringType || type instanceof VarcharType
        || type instanceof CharType ? DataTypes.StringType : type;
    boolean fits = stored != type || type.equals(value.dataType());
    if (value.value() != null && !(fits && ConditionData.hasText(stored))) {
      throw Refusal.because("plake has no default values of type " + type.simpleString()
          + ": column " + column);
    }
    ObjectNode found = Envelope.object().put(Vocabulary.RequestKey.FIELD, column);
    found.put(Vocabulary.RequestKey.VALUE,
        value.value() == null ? null : ConditionData.literal(value.value(), stored).json());
    return found.toString();
  }

  private static String expression(String column, String sql) {
    return Envelope.object().put(Vocabulary.RequestKey.FIELD, column)
        .put(Vocabulary.Computed.EXPRESSION, sql).toString();
  }

  /** Whether {@link #alter} needs the table's columns. */
  public static boolean needsTypes(TableChange[] changes) {
    return Arrays.stream(changes)
        .anyMatch(change -> change instanceof TableChange.UpdateColumnDefaultValue);
  }

  /** Changes of a table, in their order. @param columns those that it has */
  public static ObjectNode alter(Identifier table, TableChange[] changes, Column[] columns) {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.ALTER, table);
    var list = request.putArray(Vocabulary.RequestKey.CHANGES);
    for (TableChange change : changes) {
      ObjectNode one = list.addObject();
      if (change instanceof TableChange.SetProperty set) {
        one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.PROPERTY)
            .put(Vocabulary.RequestKey.FIELD, set.property())
            .put(Vocabulary.RequestKey.VALUE, set.value());
      } else if (change instanceof TableChange.RemoveProperty removed) {
        one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.PROPERTY)
            .put(Vocabulary.RequestKey.FIELD, removed.property())
            .putNull(Vocabulary.RequestKey.VALUE);
      } else if (change instanceof TableChange.ClusterBy clustered) {
        one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.CLUSTER);
        put(one.putArray(Vocabulary.RequestKey.VALUE), clustered.clusteringColumns());
      } else if (change instanceof TableChange.AddConstraint added) {
        TableConstraints.add(one, added);
      } else if (change instanceof TableChange.DropConstraint dropped) {
        TableConstraints.drop(one, dropped);
      } else if (change instanceof TableChange.ColumnChange ofColumn) {
        column(one, ofColumn, columns);
      } else {
        throw Refusal.because("plake cannot change this of a table: " + kindOf(change));
      }
    }
    return request;
  }

  /** The table with the changes of {@link #alter}, which the write that it gets will commit. */
  public static Channel.Response evolved(Channel channel, ObjectNode request) {
    request.put(Vocabulary.RequestKey.COMMAND, Vocabulary.RequestKind.EVOLVE);
    Channel.Response response = QueryVersions.read(channel, request);
    ((ObjectNode) response.body())
        .set(Vocabulary.Message.EVOLUTION, request.get(Vocabulary.RequestKey.CHANGES));
    return response;
  }

  private static String kindOf(Object change) {
    return change.getClass().getSimpleName();
  }

  private static void column(ObjectNode one, TableChange.ColumnChange change, Column[] columns) {
    var path = one.putArray(Vocabulary.RequestKey.FIELD);
    Arrays.stream(change.fieldNames()).forEach(path::add);
    if (change instanceof TableChange.AddColumn added) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.ADD)
          .put(Vocabulary.RequestKey.TYPE, json(added.dataType()))
          .put(Vocabulary.RequestKey.NULLABLE, added.isNullable())
          .put(Vocabulary.RequestKey.COMMENT, added.comment());
      position(one, added.position());
      if (added.defaultValue() != null) {
        String name = added.fieldNames()[added.fieldNames().length - 1];
        ConstantDefaults.checkAdded(name, added.defaultValue().getSql());
        one.put(Vocabulary.RequestKey.VALUE,
            value(name, added.dataType(), added.defaultValue().getValue()));
      }
    } else if (change instanceof TableChange.RenameColumn renamed) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.RENAME)
          .put(Vocabulary.RequestKey.VALUE, renamed.newName());
    } else if (change instanceof TableChange.DeleteColumn) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.DELETE);
    } else if (change instanceof TableChange.UpdateColumnType typed) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.WIDEN)
          .put(Vocabulary.RequestKey.TYPE, json(typed.newDataType()));
    } else if (change instanceof TableChange.UpdateColumnNullability set) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.NULLABILITY)
          .put(Vocabulary.RequestKey.NULLABLE, set.nullable());
    } else if (change instanceof TableChange.UpdateColumnComment set) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.COMMENT)
          .put(Vocabulary.RequestKey.COMMENT, set.newComment());
    } else if (change instanceof TableChange.UpdateColumnPosition moved) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.MOVE);
      position(one, moved.position());
    } else if (change instanceof TableChange.UpdateColumnDefaultValue set) {
      one.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.DEFAULT);
      String sql = defaultOf(set);
      if (sql != null && !sql.isEmpty()) {
        String name = change.fieldNames()[change.fieldNames().length - 1];
        one.put(Vocabulary.RequestKey.VALUE, ConstantDefaults.changes(sql)
            ? expression(name, sql) : evaluated(change.fieldNames(), sql, columns));
      }
    } else {
      throw Refusal.because("plake cannot change this of a column: " + kindOf(change));
    }
  }

  @SuppressWarnings("deprecation") // Spark 4.1 has no other, and later ones have both
  private static String defaultOf(TableChange.UpdateColumnDefaultValue change) {
    return change.newDefaultValue();
  }

  private static void position(ObjectNode one, TableChange.ColumnPosition position) {
    if (position instanceof TableChange.After after) {
      one.put(Vocabulary.RequestKey.AFTER, after.column());
    } else if (position != null) {
      one.putNull(Vocabulary.RequestKey.AFTER);
    }
  }

  /** A default value, which Spark hands over as SQL and has checked. */
  private static String evaluated(String[] path, String sql, Column[] columns) {
    for (Column column : columns) {
      if (path.length == 1 && column.name().equalsIgnoreCase(path[0])) {
        DataType type = column.dataType();
        org.apache.spark.sql.classic.Dataset<Row> frame =
            (org.apache.spark.sql.classic.Dataset<Row>) SparkSession.active().sql(
                "SELECT CAST((" + sql + ") AS " + type.sql() + ")");
        var row = frame.queryExecution().executedPlan().executeCollect()[0];
        return value(column.name(), type, new LiteralValue<>(row.get(0, type), type));
      }
    }
    throw Refusal.because("plake has default values of columns only: " + String.join(".", path));
  }

  /** The columns of {@code partitionBy}. */
  public static List<String> columns(Transform[] partitioning) {
    List<String> found = new ArrayList<>();
    for (Transform transform : partitioning) {
      NamedReference[] references = transform.references();
      if (!(transform instanceof IdentityTransform) || references.length != 1
          || references[0].fieldNames().length != 1) {
        throw Refusal.because("plake partitions by columns, and not by " + transform.describe()
            + ". Add a column with its value.");
      }
      found.add(references[0].fieldNames()[0]);
    }
    return found;
  }
}
