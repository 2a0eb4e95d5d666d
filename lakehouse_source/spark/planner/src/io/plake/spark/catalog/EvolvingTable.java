package io.plake.spark.catalog;

import io.plake.spark.core.Channel;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A table that Spark asks which changes a statement WITH SCHEMA EVOLUTION may make. Not on 4.1. */
public class EvolvingTable extends PlakeTable implements SupportsSchemaEvolution {

  private static final List<DataType> INTEGERS = List.of(
      DataTypes.ByteType, DataTypes.ShortType, DataTypes.IntegerType, DataTypes.LongType);

  public EvolvingTable(
      Channel channel, Identifier identifier, Channel.Response response, boolean isPinned,
      Map<String, String> more) {
    super(channel, identifier, response, isPinned, more);
  }

  /** New columns and fields of structs, and wider numbers. Spark casts where the answer is no. */
  @Override
  public boolean supportsColumnChange(TableChange.ColumnChange change) {
    String[] path = change.fieldNames();
    if (change instanceof TableChange.AddColumn) {
      return ((TableChange.AddColumn) change).isNullable()
          && (path.length == 1 || typeOf(path, path.length - 1) instanceof StructType);
    }
    return change instanceof TableChange.UpdateColumnType && isWider(
        typeOf(path, path.length), ((TableChange.UpdateColumnType) change).newDataType());
  }

  /** The type of a column or of what is in it; null for what is not there, and for keys of maps. */
  private DataType typeOf(String[] path, int length) {
    DataType type = schema();
    for (int i = 0; i < length; i++) {
      DataType found = null;
      if (type instanceof StructType) {
        for (StructField field : ((StructType) type).fields()) {
          if ((Boolean) SQLConf.get().resolver().apply(field.name(), path[i])) {
            found = field.dataType();
          }
        }
      } else {
        found = inside(type, path[i]);
      }
      type = found;
    }
    return type;
  }

  /** The type of the elements of a list or of the values of a map, by Spark's name of the step. */
  private static DataType inside(DataType type, String step) {
    switch (step) {
      case "element":
        return type instanceof ArrayType ? ((ArrayType) type).elementType() : null;
      case "value":
        return type instanceof MapType ? ((MapType) type).valueType() : null;
      default:
        return null;
    }
  }

  /** Whether every value of a type is exact in another one, so that no file must be rewritten. */
  private static boolean isWider(DataType narrow, DataType wide) {
    if (narrow == null) {
      return false;
    }
    if (narrow instanceof DecimalType from && wide instanceof DecimalType to) {
      return to.scale() >= from.scale()
          && to.precision() - to.scale() >= from.precision() - from.scale();
    }
    return DataTypes.FloatType.equals(narrow) && DataTypes.DoubleType.equals(wide)
        || DataTypes.DateType.equals(narrow) && DataTypes.TimestampNTZType.equals(wide)
        || INTEGERS.contains(narrow) && INTEGERS.indexOf(wide) > INTEGERS.indexOf(narrow);
  }
}
