package io.plake.spark.statements;

import io.plake.spark.core.Relations.StatementTarget;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.IsolatedScanBuilder;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What Spark has to know to rewrite one DELETE, UPDATE or MERGE: a row is known by its file and its
 * position, and an update is one row with the old place and the new values.
 */
final class RowOperation implements StatementTarget, SupportsDelta {
  private final StatementTable table;
  private final Command command;
  private IsolatedScanBuilder scan;
  private int scans = 0;

  RowOperation(StatementTable table, Command command) {
    this.table = table;
    this.command = command;
  }

  /** The operation of the target of a statement; null for any other table. */
  static RowOperation of(Object table) {
    return table instanceof RowLevelOperationTable target
        && target.operation() instanceof RowOperation found ? found : null;
  }

  StatementTable table() {
    return table;
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    return new NamedReference[] {
      column(Vocabulary.MetadataColumn.FILE), column(Vocabulary.MetadataColumn.POSITION)
    };
  }

  /** An update carries the identity of its row along. */
  @Override
  public NamedReference[] requiredMetadataAttributes() {
    return command == RowLevelOperation.Command.DELETE
        ? new NamedReference[0] : new NamedReference[] {column(Vocabulary.MetadataColumn.ROW)};
  }

  private NamedReference column(String name) {
    return Expressions.column(table.hidden().get(name).name());
  }

  @Override
  public boolean representUpdateAsDeleteAndInsert() {
    return false;
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    scan = (IsolatedScanBuilder) table.newScanBuilder(options);
    scans++;
    return scan;
  }

  /**
   * Conditions of the rows that the statement reads, known once Spark has planned its scan.
   *
   * <p>No other row can change what the statement does.
   */
  Metadata[] condition() {
    return scans == 1 ? scan.condition() : new Metadata[0];
  }

  /** Spark would call such a writer row by row, in the JVM. {@link RowWrites} takes its place. */
  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    throw new UnsupportedOperationException(
        "plake's planner extension could not plan this statement; see lakehouse_source.spark.status");
  }
}
