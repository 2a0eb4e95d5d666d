package io.plake.spark.core;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.View;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;

/**
 * The table of {@code spark.read.format("plake").load(path)}, whose rows tell where they are
 * stored.
 */
public final class PlacedFrame extends FrameTable implements SupportsMetadataColumns {

  /** Frames with these have other columns than the dataset, or rows about it. */
  private static final List<String> OTHERS = List.of(
      Vocabulary.Changes.COLUMNS, "metadataColumns", "metadataTable", Vocabulary.Changes.READ,
      Vocabulary.Option.VIEW);

  private final Map<String, String> properties;

  private PlacedFrame(PythonDataSourceV2 frame, StructType schema, String path) {
    super(frame, schema, HiddenColumns.of(schema));
    this.properties = new LineageNames(Map.of(), path);
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  /** Puts it in the place of the tables that Spark makes. */
  public static final class Places extends Rule<LogicalPlan> {
    @Override
    public LogicalPlan apply(LogicalPlan plan) {
      return Relations.isOn() ? placed(plan) : plan;
    }

    /** Not below views: Spark shows none of these columns through one. */
    private static LogicalPlan placed(LogicalPlan plan) {
      if (plan instanceof View) {
        return plan;
      }
      LogicalPlan node = plan.mapChildren(new Rewrite<>(Places::placed));
      if (!(node instanceof DataSourceV2Relation relation) || !Relations.isFrame(relation.table())
          || relation.table() instanceof PlacedFrame
          || OTHERS.stream().anyMatch(relation.options()::containsKey)) {
        return node;
      }
      PythonTable table = (PythonTable) relation.table();
      if (!HiddenColumns.canJoin(table.schema())) {
        return node;
      }
      try {
        String path = relation.options().get(Vocabulary.Place.PATH);
        return Relations.copy(relation,
            new PlacedFrame(Relations.sourceOf(table), table.schema(), path), relation.options());
      } catch (ReflectiveOperationException e) {
        Feature.PUSHDOWN.failed(e);
        return node;
      }
    }
  }
}
