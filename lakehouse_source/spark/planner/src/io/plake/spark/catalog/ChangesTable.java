package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Channel;
import io.plake.spark.core.FrameTable;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.IsolatedScanBuilder;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * What commits of a table changed, as a table: the change feed between two versions, which are
 * known.
 *
 * <p>Its scans prune by columns and conditions, and can tell of each row its identity and the
 * version that changed it last.
 */
public final class ChangesTable extends FrameTable implements SupportsMetadataColumns {

  private final String name;

  private ChangesTable(PythonDataSourceV2 frame, StructType schema, String name) {
    super(frame, schema, canPrune(schema) ? HiddenColumns.ofChanges(schema) : Map.of());
    this.name = name;
  }

  /**
   * The changes of a table that a catalog has.
   *
   * @param options what tells the range, as {@link Vocabulary.Changes} names it
   * @throws org.apache.spark.sql.AnalysisException there is no such range, undeclared
   */
  public static ChangesTable of(Channel channel, ObjectNode request, Map<String, String> options) {
    Map<String, String> all = PlakeTable.withoutPlace(new CaseInsensitiveStringMap(options));
    all.put(Vocabulary.Changes.READ, "true");
    Channel.Response response =
        channel.read(request.put(Vocabulary.RequestKey.COMMAND, Vocabulary.RequestKind.LOAD_CHANGES), all);
    return new ChangesTable(response.frame(), response.columns(),
        response.body().get(Vocabulary.ResponseKey.TABLE).asText());
  }

  /** The changes of the dataset at a path, in its own catalog. */
  static ChangesTable at(String path, Map<String, String> options) {
    Map<String, String> all = new HashMap<>(options);
    all.put(Vocabulary.Place.PATH, path);
    all.put(Vocabulary.Changes.READ, "true");
    PythonDataSourceV2 source = new PlakeSource();
    StructType schema = source.inferSchema(new CaseInsensitiveStringMap(all));
    return new ChangesTable(source, schema, path);
  }

  /** The relation that reads this table. The frame has its options: none is in the plan. */
  DataSourceV2Relation relation() {
    return DataSourceV2Relation.create(
        this, Option.empty(), Option.empty(), CaseInsensitiveStringMap.empty(), Option.empty());
  }

  private static boolean canPrune(StructType schema) {
    return Relations.isOn() && HiddenColumns.canJoin(schema);
  }

  @Override
  public String name() {
    return "changes of " + name;
  }

  @Override
  public String toString() {
    return name();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public Map<String, String> properties() {
    return Collections.emptyMap();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return canPrune(schema)
        ? new IsolatedScanBuilder(frame, schema, options, null, hidden)
        : super.newScanBuilder(options);
  }
}
