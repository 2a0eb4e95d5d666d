package io.plake.spark.statements;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import io.plake.spark.core.FrameTable;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.Relations.StatementTarget;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.scan.IsolatedScanBuilder;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The target of a DELETE, UPDATE or MERGE: the table of a frame at one version.
 *
 * <p>Its rows tell where they are stored, in columns whose names no column of the user has
 * ({@link HiddenColumns}).
 */
class StatementTable extends FrameTable
    implements StatementTarget, SupportsRowLevelOperations, SupportsMetadataColumns {

  /** The version that the statement reads. */
  final long version;

  /** How plake computes columns, by name. */
  JsonNode computed = MissingNode.getInstance();

  /** Options of its write that the statement itself names. */
  Map<String, String> writeOptions = Map.of();

  /** Those of the table that has the name, which tell what it is. */
  private Map<String, String> properties = Map.of();

  private final boolean evolves;

  StatementTable(PythonDataSourceV2 frame, StructType schema, long version) {
    this(frame, schema, version, false);
  }

  /** @param evolves whether the statement is WITH SCHEMA EVOLUTION */
  StatementTable(PythonDataSourceV2 frame, StructType schema, long version, boolean evolves) {
    super(frame, schema, HiddenColumns.of(schema));
    this.version = version;
    this.evolves = evolves;
  }

  /** The target of a MERGE whose table has the columns that it needs now. */
  static StatementTable evolved(PythonDataSourceV2 frame, StructType schema, long version) {
    return SchemaEvolution.IS_ASKED
        ? (StatementTable) SchemaEvolution.made(
            StatementTable.class.getPackageName() + ".EvolvedStatementTable", frame, schema, version)
        : new StatementTable(frame, schema, version, true);
  }

  PythonDataSourceV2 frame() {
    return frame;
  }

  StatementTable with(Map<String, String> given) {
    properties = given;
    return this;
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    Set<TableCapability> all = EnumSet.copyOf(super.capabilities());
    if (evolves) { // Spark then fills fields of structs that the source lacks
      all.add(TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);
    }
    return all;
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowOperation(this, info.command());
  }

  /** A MERGE that only inserts reads its target by this scan. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new IsolatedScanBuilder(frame, schema, options, null, hidden);
  }
}
