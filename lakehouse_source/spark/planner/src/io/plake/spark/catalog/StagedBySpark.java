package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;

/**
 * A table of another format that a query creates in Spark's session catalog.
 *
 * <p>Done as Spark does it in a catalog that stages nothing: the table is created, then written,
 * and dropped where the write fails.
 */
public final class StagedBySpark implements StagedTable, SupportsWrite {
  private final TableCatalog catalog;
  private final Identifier identifier;
  private final Table table;

  private StagedBySpark(TableCatalog catalog, Identifier identifier, Table table) {
    this.catalog = catalog;
    this.identifier = identifier;
    this.table = table;
  }

  @SuppressWarnings("deprecation") // Spark 4.1 to 4.3 all have it
  public static StagedBySpark created(
      TableCatalog catalog, Identifier table, Column[] columns, Transform[] partitions,
      Map<String, String> properties) throws TableAlreadyExistsException, NoSuchNamespaceException {
    catalog.createTable(table, columns, partitions, properties);
    try {
      return new StagedBySpark(catalog, table, catalog.loadTable(table));
    } catch (NoSuchTableException e) { // somebody else dropped it just now
      throw Refusal.undeclared(e);
    }
  }

  @Override
  public String name() {
    return table.name();
  }

  @Override
  @SuppressWarnings("deprecation")
  public StructType schema() {
    return table.schema();
  }

  @Override
  public Column[] columns() {
    return table.columns();
  }

  @Override
  public Transform[] partitioning() {
    return table.partitioning();
  }

  @Override
  public Map<String, String> properties() {
    return table.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return table.capabilities();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (table instanceof SupportsWrite written) {
      return written.newWriteBuilder(info);
    }
    throw Refusal.because("The table " + name() + " cannot be written.");
  }

  @Override
  public void commitStagedChanges() {}

  @Override
  public void abortStagedChanges() {
    catalog.dropTable(identifier);
  }
}
