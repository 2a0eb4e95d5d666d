package io.plake.spark;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The target of a DELETE, UPDATE or MERGE: the table of a frame at one version.
 *
 * <p>Its rows tell where they are stored, in columns whose names no column of the user has: an
 * underscore is put before them as often as needed. {@code unused_names} in
 * {@code schema/metadata_columns.py} has the same rule.
 */
final class StatementTable extends PythonTable
    implements SupportsRowLevelOperations, SupportsMetadataColumns {

  private final PythonDataSourceV2 frame;
  private final String shortName;
  private final StructType schema;
  private final Map<String, StructField> hidden = new LinkedHashMap<>();

  /** The version that the statement reads. */
  final long version;

  StatementTable(PythonDataSourceV2 frame, String shortName, StructType schema, long version) {
    super(frame, shortName, schema);
    this.frame = frame;
    this.shortName = shortName;
    this.schema = schema;
    this.version = version;
    Set<String> taken = new HashSet<>();
    for (String name : schema.fieldNames()) {
      taken.add(name.toLowerCase(Locale.ROOT));
    }
    hide(Vocabulary.MetadataColumn.FILE, DataTypes.StringType, taken);
    hide(Vocabulary.MetadataColumn.POSITION, DataTypes.LongType, taken);
    hide(Vocabulary.MetadataColumn.ROW, DataTypes.LongType, taken);
  }

  private void hide(String name, DataType type, Set<String> taken) {
    String unused = name;
    while (taken.contains(unused)) {
      unused = "_" + unused;
    }
    hidden.put(name, DataTypes.createStructField(unused, type, false));
  }

  /** The columns that tell where a row is stored, by plake's names. */
  Map<String, StructField> hidden() {
    return hidden;
  }

  PythonDataSourceV2 frame() {
    return frame;
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    List<MetadataColumn> columns = new ArrayList<>();
    for (StructField field : hidden.values()) {
      columns.add(new Hidden(field));
    }
    return columns.toArray(new MetadataColumn[0]);
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowOperation(this, info.command());
  }

  /** A MERGE that only inserts reads its target by this scan. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new IsolatedScanBuilder(frame, shortName, schema, options, null, this);
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof StatementTable
        && ((StatementTable) other).frame == frame
        && ((StatementTable) other).schema.equals(schema);
  }

  @Override
  public int hashCode() {
    return System.identityHashCode(frame);
  }

  private static final class Hidden implements MetadataColumn {
    private final StructField field;

    Hidden(StructField field) {
      this.field = field;
    }

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
