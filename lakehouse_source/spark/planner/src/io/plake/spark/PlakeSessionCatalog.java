package io.plake.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.PlakeTable;
import io.plake.spark.catalog.SessionEntry;
import io.plake.spark.catalog.StagedBySpark;
import io.plake.spark.catalog.TableRequests;
import io.plake.spark.catalog.TableToCreate;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Feature;
import io.plake.spark.core.QueryVersions;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.Vocabulary;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DelegatingCatalogExtension;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType$;

/**
 * Spark's session catalog, {@code spark_catalog}, with tables {@code USING plake}.
 *
 * <p>The metastore (in memory, or Hive's) keeps a name and a location; all else about the table is
 * plake's, and is asked of the dataset at that location for each query. Columns and properties that
 * the metastore keeps are those of the day when the table was created, for other programs to see.
 * Tables of other formats are Spark's own, as without this class.
 */
public class PlakeSessionCatalog extends DelegatingCatalogExtension implements StagingTableCatalog {

  static final String SETTING = "spark.sql.catalog.spark_catalog";

  /** What Spark 4.1 lacks. */
  private static final String CHANGELOG = "org.apache.spark.sql.connector.catalog.Changelog";

  private static final Transform[] NONE = new Transform[0];

  private final SparkSession session = SparkSession.active();

  /**
   * Makes this class the session catalog of a session, unless the user chose one.
   *
   * <p>Spark reads the setting whenever it needs that catalog.
   */
  static void useIn(SparkSession session) {
    if (session.sessionState().conf().contains(SETTING)) {
      return;
    }
    try { // Spark will look for the class as this does
      Class<?> found = Class.forName(className(), false,
          org.apache.spark.util.Utils.getContextOrSparkClassLoader());
      session.sessionState().conf().setConfString(SETTING, found.getName());
    } catch (ClassNotFoundException | LinkageError e) {
      Feature.CATALOG.failed(e);
    }
  }

  /** A name, not a class: 4.1 cannot load the catalog with changes of tables. */
  private static String className() {
    try {
      Class.forName(CHANGELOG, false, PlakeSessionCatalog.class.getClassLoader());
      return PlakeSessionCatalog.class.getPackageName() + ".PlakeSessionChangelogs";
    } catch (ClassNotFoundException e) {
      return PlakeSessionCatalog.class.getName();
    }
  }

  private boolean isOurs(Table found) {
    return SessionEntry.isOurs(found) && PlakeExtension.require(session);
  }

  private boolean isOurs(Map<String, String> properties) {
    if (!SessionEntry.isOurs(properties) || !PlakeExtension.require(session)) {
      return false;
    }
    Channel.refuseInTransaction("CREATE TABLE");
    return true;
  }

  // --- tables that are there -----------------------------------------------------

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    Table evolved = SchemaEvolution.next(List.of(name(), table));
    if (evolved != null) {
      return evolved;
    }
    Table found = super.loadTable(table);
    if (!isOurs(found)) {
      return SessionEntry.ofSpark(found);
    }
    SessionEntry entry = SessionEntry.of(name(), table, (V1Table) found);
    return loaded(entry, entry.about(Vocabulary.RequestKind.LOAD), false);
  }

  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    SessionEntry entry = entryOf(table);
    return entry == null ? super.loadTable(table, version)
        : loaded(entry, entry.about(Vocabulary.RequestKind.LOAD)
            .put(Vocabulary.RequestKey.VERSION, version), true);
  }

  @Override
  public Table loadTable(Identifier table, long microseconds) throws NoSuchTableException {
    SessionEntry entry = entryOf(table);
    return entry == null ? super.loadTable(table, microseconds)
        : loaded(entry, entry.about(Vocabulary.RequestKind.LOAD)
            .put(Vocabulary.RequestKey.MICROSECONDS, microseconds), true);
  }

  /** The metastore has the name: a missing dataset is another error than a missing table. */
  private static PlakeTable loaded(SessionEntry entry, ObjectNode request, boolean isPinned) {
    try {
      return entry.table(isPinned ? entry.channel.read(request)
          : QueryVersions.read(entry.channel, request), isPinned);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) { // plake's, which are not declared
      if (e instanceof NoSuchTableException) {
        throw Refusal.because(e.getMessage() + " The table " + entry.shown()
            + " has that location; DROP TABLE removes its name.");
      }
      throw Refusal.undeclared(e);
    }
  }

  /** The entry of a table of plake; null where the name is free, or that of another table. */
  private SessionEntry entryOf(Identifier table) {
    try {
      Table found = super.loadTable(table);
      return isOurs(found) ? SessionEntry.of(name(), table, (V1Table) found) : null;
    } catch (NoSuchTableException e) {
      return null;
    }
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    SessionEntry entry = entryOf(table);
    if (entry == null) {
      return super.alterTable(table, changes);
    }
    Column[] columns = TableRequests.needsTypes(changes)
        ? loadTable(table).columns() : new Column[0];
    ObjectNode request = TableRequests.alter(entry.path, changes, columns);
    if (SchemaEvolution.isAsking()) {
      return SchemaEvolution.next(List.of(name(), table), entry.table(
          TableRequests.evolved(entry.channel, entry.named(request)), false));
    }
    return entry.table(entry.channel.change(entry.named(request)), false);
  }

  private void refuseInTransaction(Identifier table, String statement) {
    if (Channel.isInTransaction() && entryOf(table) != null) {
      Channel.refuseInTransaction(statement);
    }
  }

  @Override
  public boolean dropTable(Identifier table) {
    refuseInTransaction(table, "DROP TABLE");
    return super.dropTable(table);
  }

  @Override
  public boolean purgeTable(Identifier table) {
    refuseInTransaction(table, "DROP TABLE");
    return super.purgeTable(table);
  }

  @Override
  public void renameTable(Identifier table, Identifier renamed)
      throws NoSuchTableException, TableAlreadyExistsException {
    SessionEntry entry = entryOf(table);
    refuseInTransaction(table, "ALTER TABLE ... RENAME TO");
    if (entry != null && entry.isManaged) {
      throw Refusal.because("The table " + entry.shown() + " cannot be renamed: it was created without"
          + " LOCATION, and Spark would move its folder.");
    }
    super.renameTable(table, renamed);
  }

  // --- tables that are created ---------------------------------------------------

  /**
   * A table like another one, of the same format where none is named. Spark asks for it from 4.3
   * on, and its own session catalog cannot: without this catalog Spark would not have asked.
   */
  @Override
  public Table createTableLike(Identifier table, TableInfo requested, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Map<String, String> properties = new HashMap<>(requested.properties());
    String provider = source.properties().get(TableCatalog.PROP_PROVIDER);
    if (provider != null) {
      properties.putIfAbsent(TableCatalog.PROP_PROVIDER, provider);
    }
    if (!isOurs(properties)) {
      return super.createTable(table, requested.columns(), requested.partitions(), properties);
    }
    Map<String, String> all = TableRequests.propertiesLike(source, requested);
    all.putAll(properties);
    return createTable(table, new TableInfo.Builder()
        .withColumns(TableRequests.columnsLike(source, requested))
        .withPartitions(requested.partitions()).withProperties(all).build());
  }

  /** Spark asks the catalog, and not the format; of others these are refused here. */
  @Override
  public Set<TableCatalogCapability> capabilities() {
    return Set.of(TableCatalogCapability.values());
  }

  private static void checkOfSpark(TableInfo info) {
    boolean isPlain = info.constraints().length == 0 && Arrays.stream(info.columns()).allMatch(
        one -> one.generationExpression() == null && one.identityColumnSpec() == null);
    if (!isPlain) {
      throw Refusal.because("spark_catalog takes constraints, generated and identity columns of"
          + " tables USING plake, and of no others.");
    }
  }

  @Override
  public Table createTable(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Column[] columns = info.columns();
    Map<String, String> properties = info.properties();
    if (!isOurs(properties)) {
      checkOfSpark(info);
      return super.createTable(table, columns, info.partitions(), properties);
    }
    Map<String, String> texts = SessionEntry.withoutOptions(properties);
    SessionEntry entry = SessionEntry.toCreate(name(), table, properties);
    if (entry != null && entry.exists()) {
      Channel.Response response = entry.channel.read(entry.about(Vocabulary.RequestKind.LOAD));
      checkSame(entry, response, info, texts);
      PlakeTable found = entry.table(response, false);
      register(table, found.columns(), properties);
      return found;
    }
    if (columns.length == 0) {
      throw Refusal.because(entry == null
          ? "A table without LOCATION has no dataset that tells its columns: name them."
          : "There is no dataset at " + entry.path.name() + " that tells the columns of the table:"
              + " name them, and the dataset is created.");
    }
    SessionEntry made = register(table, columns, properties);
    try {
      ObjectNode request = TableRequests.create(made.path, info, texts, false);
      return made.table(made.channel.change(made.named(request)), false);
    } catch (Throwable e) {
      super.dropTable(table);
      throw e;
    }
  }

  /**
   * Gives a table its name in the metastore.
   *
   * <p>Partitions and defaults are left out: the metastore makes demands on them, and nobody reads
   * them there.
   */
  private SessionEntry register(
      Identifier table, Column[] columns, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    Column[] plain = new Column[columns.length];
    for (int i = 0; i < columns.length; i++) {
      plain[i] = Column.create(
          columns[i].name(), columns[i].dataType(), columns[i].nullable(), columns[i].comment(), null);
    }
    super.createTable(table, plain, NONE, properties);
    return entryOf(table);
  }

  /** What a statement says of a dataset that exists must be so. */
  private static void checkSame(
      SessionEntry entry, Channel.Response response, TableInfo info, Map<String, String> texts) {
    Column[] columns = info.columns();
    Transform[] partitions = info.partitions();
    if (info.constraints().length > 0) {
      throw Refusal.because("The dataset at " + entry.path.name() + " exists and keeps its"
          + " constraints: leave CONSTRAINT out, and use ALTER TABLE after that.");
    }
    var given = CatalogV2Util.v2ColumnsToStructType(columns);
    boolean same = DataType$.MODULE$.equalsIgnoreCaseAndNullability(given, response.columns());
    for (int i = 0; same && i < given.length(); i++) {
      var field = given.fields()[i];
      same = field.nullable() || !response.columns().fields()[i].nullable();
    }
    if (columns.length > 0 && !same) {
      throw Refusal.because("The dataset at " + entry.path.name() + " has other columns: "
          + response.columns().simpleString() + ". Leave the columns out.");
    }
    List<String> partitionedBy = response.texts(Vocabulary.ResponseKey.PARTITION_BY);
    if (partitions.length > 0 && !TableRequests.columns(partitions).equals(partitionedBy)) {
      throw Refusal.because("The dataset at " + entry.path.name() + " has other partition columns: "
          + partitionedBy + ". Leave PARTITIONED BY and CLUSTER BY out.");
    }
    var stored = response.body().get(Vocabulary.ResponseKey.PROPERTIES);
    for (Map.Entry<String, String> text : texts.entrySet()) {
      boolean isSpark = CatalogV2Util.TABLE_RESERVED_PROPERTIES().contains(text.getKey())
          && !TableCatalog.PROP_COMMENT.equals(text.getKey());
      if (!isSpark && !(stored.has(text.getKey())
          && stored.get(text.getKey()).asText().equals(text.getValue()))) {
        throw Refusal.because("The dataset at " + entry.path.name() + " exists and keeps its"
            + " properties: leave " + text.getKey() + " out, and use ALTER TABLE after that.");
      }
    }
  }

  // --- tables that are created by what is written to them ---------------------------

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return isOurs(info.properties()) ? created(table, info) : ofSpark(table, info);
  }

  private StagedTable ofSpark(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    checkOfSpark(info);
    return StagedBySpark.created(this, table, info.columns(), info.partitions(), info.properties());
  }

  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info)
      throws NoSuchTableException, NoSuchNamespaceException {
    if (!tableExists(table)) {
      throw new NoSuchTableException(table);
    }
    return stageCreateOrReplace(table, info);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info)
      throws NoSuchNamespaceException {
    try {
      if (!isOurs(info.properties())) {
        checkOfSpark(info);
        if (tableExists(table)) {
          dropTable(table);
        }
        return ofSpark(table, info);
      }
      return tableExists(table) ? replaced(table, info) : created(table, info);
    } catch (TableAlreadyExistsException e) { // somebody else created it just now
      throw Refusal.undeclared(e);
    }
  }

  /** The name comes first, so that a name that is taken costs no work; a failed write frees it. */
  private StagedTable created(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    SessionEntry given = SessionEntry.toCreate(name(), table, info.properties());
    if (given != null && given.exists()) {
      throw Refusal.because("There is a dataset at " + given.path.name() + ": CREATE TABLE without AS"
          + " gives it a name.");
    }
    SessionEntry entry = register(table, info.columns(), info.properties());
    Runnable undo = () -> super.dropTable(table);
    try {
      return staged(entry, Vocabulary.Stage.CREATE, info, undo);
    } catch (Throwable e) {
      undo.run();
      throw e;
    }
  }

  private StagedTable replaced(Identifier table, TableInfo info) {
    SessionEntry entry = entryOf(table);
    if (entry == null) {
      throw Refusal.because("The table " + String.join(".", table.namespace()) + "." + table.name()
          + " is not one of plake: DROP TABLE it, and create it then.");
    }
    SessionEntry given = SessionEntry.toCreate(name(), table, info.properties());
    if (given != null && !given.path.name().equals(entry.path.name())) {
      throw Refusal.because("LOCATION cannot change: the table is at " + entry.path.name() + ".");
    }
    return staged(entry, Vocabulary.Stage.EITHER, info, null);
  }

  private static StagedTable staged(
      SessionEntry entry, String kind, TableInfo info, Runnable undo) {
    Map<String, String> texts = new HashMap<>(SessionEntry.withoutOptions(info.properties()));
    ObjectNode request = TableRequests.create(entry.path, info, texts, true)
        .put(Vocabulary.RequestKey.STAGE, kind);
    return new TableToCreate(
        entry.channel, entry.named(request), info.columns(), info.partitions(), undo);
  }
}
