package io.plake.spark;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.PlakeProcedure;
import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.catalog.TableRequests;
import io.plake.spark.catalog.TableToCreate;
import io.plake.spark.core.Channel;
import io.plake.spark.core.QueryVersions;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's catalog of plake's tables: {@code spark.sql.catalog.plake=io.plake.spark.PlakeCatalog}.
 *
 * <p>A table is known by a name, {@code plake.sales.orders}, or by its path, {@code
 * plake.`/data/flights`}. The option {@code catalog} is the URL of plake's catalog, which has the
 * names, and {@code warehouse} the folder of tables without a location. Everything is asked through
 * {@link Channel}, for each query anew, so that a query reads the newest version. What plake
 * refuses comes as Spark's exception for it; most of these are not declared ({@link Refusal}).
 */
public class PlakeCatalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  /** The session that makes this catalog. Another one may be active where it is used. */
  private final SparkSession session = SparkSession.active();

  private String name;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    this.name = name;
  }

  /**
   * The way to plake, with the settings that the session has now: Spark makes a catalog once in a
   * session, and never tells it of settings that are changed later.
   */
  Channel channel() {
    PlakeExtension.require(session);
    String prefix = "spark.sql.catalog." + name + ".";
    Map<String, String> options = new HashMap<>();
    asJava(session.sessionState().conf().getAllConfs()).forEach((key, value) -> {
      if (key.startsWith(prefix)) {
        options.put(key.substring(prefix.length()), value);
      }
    });
    return new Channel(name, options);
  }

  @Override
  public String name() {
    return name;
  }

  /** What plans show. */
  @Override
  public String toString() {
    return name;
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {Vocabulary.Namespace.DEFAULT};
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of(
        TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE,
        TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_GENERATED_COLUMNS,
        TableCatalogCapability.SUPPORTS_CREATE_TABLE_WITH_IDENTITY_COLUMNS,
        TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
  }

  // --- tables ------------------------------------------------------------------

  /**
   * The table at its newest version, for who has not said whether it will write.
   *
   * <p>Where a path has none, Spark would take {@code plake.`/path`} for a query on a file and say
   * that plake cannot answer it. It gets an exception that it does not catch.
   */
  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return newest(table, false);
  }

  /** @param isOfQuery whether Spark's analyzer asks, and not a program */
  Table newest(Identifier table, boolean isOfQuery) throws NoSuchTableException {
    Table evolved = SchemaEvolution.next(List.of(name, table));
    if (evolved != null) {
      return evolved;
    }
    try {
      return PlakeTable.newest(channel(), table, isOfQuery);
    } catch (NoSuchTableException e) {
      if (isPath(table)) {
        throw Refusal.because(e.getMessage());
      }
      throw e;
    }
  }

  @Override
  public Table loadTable(Identifier table, Set<TableWritePrivilege> privileges)
      throws NoSuchTableException {
    Table evolved = SchemaEvolution.next(List.of(name, table));
    return evolved != null ? evolved
        : load(table, Channel.about(Vocabulary.RequestKind.LOAD, table), false);
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.LOAD, table)
        .put(Vocabulary.RequestKey.VERSION, version);
    return load(table, request, true);
  }

  @Override
  public Table loadTable(Identifier table, long microseconds) throws NoSuchTableException {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.LOAD, table)
        .put(Vocabulary.RequestKey.MICROSECONDS, microseconds);
    return load(table, request, true);
  }

  private Table load(Identifier table, ObjectNode request, boolean isPinned)
      throws NoSuchTableException {
    Channel channel = channel();
    Channel.Response found =
        isPinned ? channel.read(request) : QueryVersions.read(channel, request);
    return PlakeTable.of(channel, table, found, isPinned, Map.of());
  }

  @Override
  public boolean tableExists(Identifier table) {
    try {
      loadTable(table, Set.of());
      return true;
    } catch (NoSuchTableException e) {
      return false;
    }
  }

  /** {@code spark/tables/commands.py} has the same rule. */
  private static boolean isPath(Identifier table) {
    return table.namespace().length == 0 && table.name().contains("/");
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    return named(Vocabulary.RequestKind.LIST_TABLES, namespace);
  }

  /** What a namespace has by name. */
  Identifier[] named(String command, String[] namespace) {
    return channel().read(about(command, namespace)).texts(Vocabulary.ResponseKey.NAMES).stream()
        .map(name -> Identifier.of(namespace, name)).toArray(Identifier[]::new);
  }

  @Override
  public Table createTable(Identifier table, TableInfo info) {
    ObjectNode request = TableRequests.create(table, info, false);
    return PlakeTable.of(channel(), table, channel().change(request), false, Map.of());
  }

  /**
   * A table with the columns, default values and partitions of another one, and with the
   * properties of a table of plake. Spark asks for it from 4.3 on.
   */
  @Override
  public Table createTableLike(Identifier table, TableInfo requested, Table source) {
    return createTable(table, new TableInfo.Builder()
        .withColumns(TableRequests.columnsLike(source, requested))
        .withPartitions(requested.partitions())
        .withProperties(TableRequests.propertiesLike(source, requested))
        .build());
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    Column[] columns = TableRequests.needsTypes(changes)
        ? loadTable(table).columns() : new Column[0];
    ObjectNode request = TableRequests.alter(table, changes, columns);
    if (SchemaEvolution.isAsking()) {
      Channel channel = channel();
      return SchemaEvolution.next(List.of(name, table), PlakeTable.of(
          channel, table, TableRequests.evolved(channel, request), false, Map.of()));
    }
    return PlakeTable.of(channel(), table, channel().change(request), false, Map.of());
  }

  @Override
  public boolean dropTable(Identifier table) {
    return drop(table, false);
  }

  @Override
  public boolean purgeTable(Identifier table) {
    return drop(table, true);
  }

  private boolean drop(Identifier table, boolean purge) {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.DROP, table)
        .put(Vocabulary.RequestKey.PURGE, purge);
    return channel().change(request).body().get(Vocabulary.ResponseKey.EXISTS).asBoolean();
  }

  @Override
  public void renameTable(Identifier table, Identifier renamed) {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.RENAME, table);
    Channel.add(request.putArray(Vocabulary.RequestKey.RENAMED), renamed);
    channel().change(request);
  }

  // --- tables that are created by what is written to them ---------------------------

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info) {
    return staged(table, info, Vocabulary.Stage.CREATE);
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info) {
    return staged(table, info, Vocabulary.Stage.REPLACE);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) {
    return staged(table, info, Vocabulary.Stage.EITHER);
  }

  private StagedTable staged(Identifier table, TableInfo info, String kind) {
    ObjectNode request = TableRequests.create(table, info, true)
        .put(Vocabulary.RequestKey.STAGE, kind);
    return new TableToCreate(channel(), request, info.columns(), info.partitions(), null);
  }

  // --- namespaces ----------------------------------------------------------------

  static ObjectNode about(String command, String[] namespace) {
    ObjectNode request = Channel.about(command, null);
    for (String part : namespace) {
      request.withArray(Vocabulary.RequestKey.NAMESPACE).add(part);
    }
    return request;
  }

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return listNamespaces(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    ObjectNode request = about(Vocabulary.RequestKind.LIST_NAMESPACES, namespace);
    return channel().read(request).texts(Vocabulary.ResponseKey.NAMES).stream()
        .map(name -> new String[] {name}).toArray(String[][]::new);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace)
      throws NoSuchNamespaceException {
    ObjectNode request = about(Vocabulary.RequestKind.LOAD_NAMESPACE, namespace);
    return PlakeTable.texts(channel().read(request).body().get(Vocabulary.ResponseKey.PROPERTIES));
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    ObjectNode request = about(Vocabulary.RequestKind.CREATE_NAMESPACE, namespace);
    TableRequests.put(request, properties);
    channel().change(request);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes)
      throws NoSuchNamespaceException {
    Map<String, String> properties = new HashMap<>();
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty set) {
        properties.put(set.property(), set.value());
      } else if (change instanceof NamespaceChange.RemoveProperty removed) {
        properties.put(removed.property(), null);
      } else {
        throw Refusal.because("plake cannot change this of a namespace: " + change);
      }
    }
    ObjectNode request = about(Vocabulary.RequestKind.ALTER_NAMESPACE, namespace);
    TableRequests.put(request, properties);
    channel().change(request);
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException {
    ObjectNode request = about(Vocabulary.RequestKind.DROP_NAMESPACE, namespace)
        .put(Vocabulary.RequestKey.CASCADE, cascade);
    channel().change(request);
    return true;
  }

  // --- procedures ----------------------------------------------------------------

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    return PlakeProcedure.load(channel(), name, procedure);
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    return PlakeProcedure.list(channel(), namespace);
  }
}
