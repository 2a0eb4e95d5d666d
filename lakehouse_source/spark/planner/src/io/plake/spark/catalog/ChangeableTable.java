package io.plake.spark.catalog;

import io.plake.spark.core.Channel;
import io.plake.spark.core.Refusal;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;

/**
 * A table that says that its rows can be changed, before a statement changes them. Not on 4.1.
 *
 * <p>Spark's Auto CDC asks it of the table that the catalog loads. Only {@code RowStatements} makes
 * the target of a statement.
 */
public final class ChangeableTable extends EvolvingTable implements SupportsRowLevelOperations {

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
