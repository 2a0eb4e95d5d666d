package io.plake.spark.format;

import io.plake.spark.catalog.TableRequests;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.Relations;
import io.plake.spark.core.StreamErrors;
import io.plake.spark.core.WriteCommands.WriteInfo;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The format {@code plake} where the jar is among Spark's: the Python source, with all save modes
 * and {@code partitionBy}.
 *
 * <p>Spark refuses the modes {@code errorifexists} and {@code ignore} of a source that writes
 * batches by its second API. The table of a write therefore says that it does not, and Spark plans
 * the write by its first API, as {@code SaveIntoDataSourceCommand}. {@link FormatWrites} turns that
 * command into the write that Spark would have planned for the Python source. Reads and streams are
 * those of the Python source.
 */
public final class PlakeProvider extends PlakeSource
    implements DataSourceRegister, CreatableRelationProvider {

  private boolean reads = false;

  /** Spark gives a Python source its name once, and this one has it. */
  @Override
  public void setShortName(String name) {}

  @Override
  public String shortName() {
    return Relations.SOURCE;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    reads = true;
    return super.inferSchema(options);
  }

  /**
   * Spark asks before it reads, also where the user gave the schema, and never before it writes.
   */
  @Override
  public Transform[] inferPartitioning(CaseInsensitiveStringMap options) {
    reads = true;
    return super.inferPartitioning(options);
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return reads ? new PythonTable(this, Relations.SOURCE, schema)
        : new Target(this, schema, partitioning);
  }

  /** plake itself says which types it stores. */
  @Override
  public boolean supportsDataType(DataType type) {
    return true;
  }

  /** Writes in a session whose analyzer lacks {@link FormatWrites}. */
  @Override
  public BaseRelation createRelation(
      SQLContext context, SaveMode mode,
      scala.collection.immutable.Map<String, String> options, Dataset<Row> data) {
    org.apache.spark.sql.classic.Dataset<Row> frame =
        (org.apache.spark.sql.classic.Dataset<Row>) data;
    var write = FormatWrites.planned(frame.logicalPlan(), mode, options);
    org.apache.spark.sql.classic.Dataset.ofRows(frame.sparkSession(), write);
    return written(context, data.schema());
  }

  private static BaseRelation written(SQLContext context, StructType schema) {
    return new BaseRelation() {
      @Override
      public SQLContext sqlContext() {
        return context;
      }

      @Override
      public StructType schema() {
        return schema;
      }
    };
  }

  /**
   * The table of a write.
   *
   * <p>Spark's first API refuses intervals. A frame that has one is written by the second API, with
   * the modes {@code append} and {@code overwrite}.
   */
  private static final class Target extends Written {
    private final Transform[] partitioning;
    private final boolean hasInterval;

    Target(PlakeSource source, StructType schema, Transform[] partitioning) {
      super(source, schema);
      this.partitioning = partitioning;
      this.hasInterval = schema.existsRecursively(type -> type instanceof DayTimeIntervalType);
    }

    @Override
    public Set<TableCapability> capabilities() {
      Set<TableCapability> all = EnumSet.copyOf(super.capabilities());
      if (!hasInterval) {
        all.remove(TableCapability.BATCH_WRITE);
      }
      return all;
    }

    /** What the user gave: Spark compares them. */
    @Override
    public Transform[] partitioning() {
      return partitioning.clone();
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
      FormatWrites.choose(options, FormatWrites.PARTITION_BY, TableRequests.columns(partitioning));
      return StreamErrors.of(NamedSinks.orPath(
          new WriteInfo(info, new CaseInsensitiveStringMap(options)), super::newWriteBuilder));
    }
  }
}
