package io.plake.spark.statements;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.PlakeSource;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.core.WriteCommands.WriteInfo;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Takes the rows of one statement, whatever columns they have, to plake's writer in Python.
 *
 * <p>What the statement is and which version it read travels in an option of the write.
 */
final class RowChangeTable extends PlakeSource.Written {
  private final StatementTable target;
  private final RowLevelOperation.Command command;
  private final RowOperation operation;
  private final boolean rescans;

  /**
   * @param operation null where all rows are new: they have the columns of the dataset only
   * @param rescans whether datasets of plake are read besides the rows that may change
   */
  RowChangeTable(
      StatementTable target, RowLevelOperation.Command command, RowOperation operation,
      StructType rows, boolean rescans) {
    super(new PlakeSource(), rows);
    this.target = target;
    this.command = command;
    this.operation = operation;
    this.rescans = rescans;
  }

  @Override
  public Map<String, String> properties() {
    return target.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    Set<TableCapability> all = EnumSet.copyOf(super.capabilities());
    all.add(TableCapability.ACCEPT_ANY_SCHEMA);
    return all;
  }

  /** Spark asks for it after it has planned the scan. */
  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
    options.putAll(target.writeOptions);
    ObjectNode statement = statement();
    for (String known : List.of(
        Vocabulary.Statement.ID, Vocabulary.Statement.QUERY, Vocabulary.Statement.BATCH)) {
      statement.put(known, options.remove(known));
    }
    SealedOptions.put(options, Vocabulary.Message.STATEMENT, statement);
    Channel.putClaims(options);
    WriteBuilder stock =
        super.newWriteBuilder(new WriteInfo(info, new CaseInsensitiveStringMap(options)));
    // A DELETE writes no rows, and the tasks of its scan have whole row groups already.
    if (operation == null || command == RowLevelOperation.Command.DELETE) {
      return stock;
    }
    String file = target.hidden().get(Vocabulary.MetadataColumn.FILE).name();
    return clustered(stock, file);
  }

  private static WriteBuilder clustered(WriteBuilder stock, String file) {
    return new WriteBuilder() {
      @Override
      public Write build() {
        return new Clustered(stock.build(), file);
      }
    };
  }

  private ObjectNode statement() {
    ObjectNode body = Envelope.object()
        .put(Vocabulary.Statement.COMMAND, nameOf(command))
        .put(Vocabulary.Statement.VERSION, target.version)
        .put(Vocabulary.Statement.ADDED, operation == null)
        .put(Vocabulary.Statement.RESCANS, rescans);
    Metadata[] condition = operation == null ? new Metadata[0] : operation.condition();
    body.set(Vocabulary.Statement.CONDITION, Envelope.list(condition));
    return body;
  }

  private static String nameOf(RowLevelOperation.Command command) {
    return switch (command) {
      case DELETE -> Vocabulary.Command.DELETE;
      case UPDATE -> Vocabulary.Command.UPDATE;
      case MERGE -> Vocabulary.Command.MERGE;
    };
  }

  /**
   * Brings the rows of a file together, and makes few tasks of few rows: each writes a file.
   *
   * <p>Not strictly: Spark may divide a file with many changed rows. The driver unites the parts.
   */
  private record Clustered(Write stock, String file) implements RequiresDistributionAndOrdering {
    @Override
    public Distribution requiredDistribution() {
      return Distributions.clustered(new Expression[] {Expressions.column(file)});
    }

    @Override
    public boolean distributionStrictlyRequired() {
      return false;
    }

    @Override
    public SortOrder[] requiredOrdering() {
      return new SortOrder[0];
    }

    @Override
    public String description() {
      return stock.description();
    }

    /** What {@code explain()} shows. */
    @Override
    public String toString() {
      return String.valueOf(stock);
    }

    @Override
    public BatchWrite toBatch() {
      return stock.toBatch();
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return stock.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
      return stock.reportDriverMetrics();
    }
  }
}
