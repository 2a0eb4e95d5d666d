package io.plake.spark.catalog;

import io.plake.spark.core.Channel;
import io.plake.spark.core.Refusal;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
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
    if (change instanceof TableChange.AddColumn added) {
      return added.isNullable()
          && (path.length == 1 || typeOf(path, path.length - 1) instanceof StructType);
    }
    return change instanceof TableChange.UpdateColumnType updated
        && isWider(typeOf(path, path.length), updated.newDataType());
  }

  /** The type of a column or of what is in it; null for what is not there, and for keys of maps. */
  private DataType typeOf(String[] path, int length) {
    DataType type = schema();
    for (int i = 0; i < length; i++) {
      type = inside(type, path[i]);
    }
    return type;
  }

  /** The type of a field, or by Spark's name of the step that of elements or of values of a map. */
  private static DataType inside(DataType type, String step) {
    if (type instanceof StructType struct) {
      return Arrays.stream(struct.fields())
          .filter(field -> (Boolean) SQLConf.get().resolver().apply(field.name(), step))
          .map(StructField::dataType).reduce(null, (first, last) -> last);
    }
    return type instanceof ArrayType array && step.equals("element") ? array.elementType()
        : type instanceof MapType map && step.equals("value") ? map.valueType() : null;
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

  /**
   * A table that says that its rows can be changed, before a statement changes them. Not on 4.1.
   *
   * <p>Spark's Auto CDC asks it of the table that the catalog loads. Only {@code RowStatements}
   * makes the target of a statement.
   */
  public static final class ChangeableTable extends EvolvingTable
      implements SupportsRowLevelOperations {

    public ChangeableTable(
        Channel channel, Identifier identifier, Channel.Response response, Boolean isPinned,
        Map<String, String> more) {
      super(channel, identifier, response, isPinned, more);
    }

    @Override
    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
      throw Refusal.because("A DELETE, UPDATE or MERGE of " + name() + " needs plake's planner"
          + " extension, which this session has turned off.");
    }
  }
}
