package io.plake.spark.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The columns that tell where a row is stored and which row it is, for a table.
 *
 * <p>Their names differ from those of the user's columns: an underscore is put before them as often
 * as needed. {@code unused_names} in {@code schema/fields.py} has the same rule.
 */
public final class HiddenColumns {
  private static final List<String> IN_STRUCT_ONLY =
      List.of(Vocabulary.MetadataColumn.FILE_URI, Vocabulary.MetadataColumn.FILE_SIZE);

  /** What Spark's own readers of files show of a file and a row, as far as plake knows it. */
  public static final StructField STRUCT = DataTypes.createStructField("_metadata", new StructType()
      .add("file_path", DataTypes.StringType, false).add("file_name", DataTypes.StringType, false)
      .add("file_size", DataTypes.LongType, false).add("row_index", DataTypes.LongType, false)
      .add("row_id", DataTypes.LongType, false)
      .add("row_commit_version", DataTypes.LongType, false), false);

  /** Whether each column of a table has a name of its own, by which a scan can ask for it. */
  public static boolean canJoin(StructType schema) {
    int names = new HashSet<>(List.of(schema.fieldNames())).size();
    return names > 0 && names == schema.length();
  }

  /** The columns, by plake's names. */
  public static Map<String, StructField> of(StructType schema) {
    Set<String> taken = new HashSet<>();
    for (String name : schema.fieldNames()) {
      taken.add(name.toLowerCase(Locale.ROOT));
    }
    Map<String, StructField> found = new LinkedHashMap<>();
    hide(found, Vocabulary.MetadataColumn.FILE, DataTypes.StringType, taken);
    hide(found, Vocabulary.MetadataColumn.POSITION, DataTypes.LongType, taken);
    hide(found, Vocabulary.MetadataColumn.ROW, DataTypes.LongType, taken);
    hide(found, Vocabulary.MetadataColumn.COMMIT, DataTypes.LongType, taken);
    hide(found, Vocabulary.MetadataColumn.FILE_URI, DataTypes.StringType, taken);
    hide(found, Vocabulary.MetadataColumn.FILE_SIZE, DataTypes.LongType, taken);
    return found;
  }

  /**
   * Those of the change feed, but for names that a column has: its reader knows one meaning only.
   */
  public static Map<String, StructField> ofChanges(StructType schema) {
    Map<String, StructField> found = new LinkedHashMap<>();
    for (String name : List.of(
        Vocabulary.MetadataColumn.ROW, Vocabulary.MetadataColumn.LAST_CHANGED)) {
      if (Arrays.stream(schema.fieldNames()).noneMatch(name::equalsIgnoreCase)) {
        found.put(name, DataTypes.createStructField(name, DataTypes.LongType, false));
      }
    }
    return found;
  }

  /** Why a MERGE does not add a column of its source to the target. */
  public static String notAdded(String name) {
    return "The source of this MERGE WITH SCHEMA EVOLUTION has a column " + name + ", which the"
        + " target lacks. In a MERGE this name means where or what a row of the target is, and so"
        + " the column would not be added. Give it another name in the source, or add it to the"
        + " table before: ALTER TABLE ... ADD COLUMN " + name + ".";
  }

  private static void hide(
      Map<String, StructField> found, String name, DataType type, Set<String> taken) {
    String unused = name;
    while (taken.contains(unused)) {
      unused = "_" + unused;
    }
    found.put(name, DataTypes.createStructField(unused, type, false));
  }

  /** The columns as Spark asks a table for them; in place of two the struct that shows them. */
  public static MetadataColumn[] columns(Map<String, StructField> hidden) {
    List<MetadataColumn> columns = new ArrayList<>();
    hidden.forEach((name, field) -> {
      if (!IN_STRUCT_ONLY.contains(name)) {
        columns.add(new Hidden(field));
      }
    });
    if (hidden.keySet().containsAll(IN_STRUCT_ONLY)) {
      columns.add(new Hidden(STRUCT));
    }
    return columns.toArray(new MetadataColumn[0]);
  }

  private record Hidden(StructField field) implements MetadataColumn {
    @Override
    public String name() {
      return field.name();
    }

    @Override
    public DataType dataType() {
      return field.dataType();
    }

    @Override
    public boolean isNullable() {
      return false;
    }
  }
}
