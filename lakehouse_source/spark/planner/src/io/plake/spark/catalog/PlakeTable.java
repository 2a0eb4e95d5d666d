package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.catalog.EvolvingTable.ChangeableTable;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Envelope;
import io.plake.spark.core.FrameTable;
import io.plake.spark.core.HiddenColumns;
import io.plake.spark.core.LineageNames;
import io.plake.spark.core.QueryVersions;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations.NamedTable;
import io.plake.spark.core.Relations;
import io.plake.spark.core.SchemaEvolution;
import io.plake.spark.core.SealedOptions;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.ConditionData;
import io.plake.spark.scan.IsolatedScanBuilder;
import java.util.Collections;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.expressions.ClusterByTransform;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of Spark's catalog at one version, which is the newest when a query is analysed.
 *
 * <p>{@code IsolateScans} takes its scans, and {@code RowStatements} makes it the target of
 * statements, as they do with frames of {@code spark.read}.
 */
public class PlakeTable extends FrameTable
    implements NamedTable, SupportsMetadataColumns, TruncatableTable, TablePartitions {

  private static final Set<String> VERSIONS = Set.of("versionasof", "timestampasof");
  public static final String BRANCH = "branch";

  private final Channel channel;
  private final Identifier identifier;
  private final String name;
  private final Map<String, String> options;
  private final Map<String, String> properties;
  private final Transform[] partitions;
  private final List<String> clusterBy;
  private final Constraint[] constraints;
  private final JsonNode evolution; // changes that its write commits; null: none
  private final JsonNode computed;
  private final List<String> primaryKey;
  private final Map<String, String> defaults; // of this statement, by name
  private final Map<CaseInsensitiveStringMap, PythonDataSourceV2> frames = new HashMap<>();

  /** The version that its scans read. */
  public final long version;

  /** Whether the user named the version. */
  public final boolean isPinned;

  /**
   * Whether the analyzer found it for a statement such as SHOW: a catalog without views does not
   * know.
   */
  volatile boolean isOfStatement = false;

  /** Whether DESCRIBE shows it: comments of columns then tell how they are computed. */
  volatile boolean isDescribed = false;

  /** Whether its rows are about a table, such as its files. */
  public final boolean isMetadata;

  /** @param more properties that Spark's metastore has of the table */
  PlakeTable(
      Channel channel, Identifier identifier, Channel.Response response, boolean isPinned,
      Map<String, String> more) {
    super(response.frame(), response.columns(),
        isMetadata(response) || !HiddenColumns.canJoin(response.columns())
            ? Map.of() : HiddenColumns.of(response.columns()));
    this.channel = channel;
    this.identifier = identifier;
    this.isPinned = isPinned;
    this.isMetadata = isMetadata(response);
    this.name = response.body().get(Vocabulary.ResponseKey.TABLE).asText();
    this.version = response.body().get(Vocabulary.ResponseKey.AT).asLong();
    this.options = texts(response.body().get(Vocabulary.ResponseKey.OPTIONS));
    Map<String, String> all = texts(response.body().get(Vocabulary.ResponseKey.PROPERTIES));
    all.putAll(more);
    this.properties = Collections.unmodifiableMap(
        new LineageNames(all, all.get(TableCatalog.PROP_LOCATION)));
    this.constraints = TableConstraints.of(response.body().get(Vocabulary.ResponseKey.CONSTRAINTS));
    this.computed = response.body().get(Vocabulary.ResponseKey.COMPUTED);
    this.defaults = texts(response.body().get(Vocabulary.ResponseKey.DEFAULTS));
    this.primaryKey = response.texts(Vocabulary.ResponseKey.PRIMARY_KEY);
    this.partitions = response.texts(Vocabulary.ResponseKey.PARTITION_BY).stream()
        .map(column -> Expressions.identity(Refusal.quoted(column))).toArray(Transform[]::new);
    this.evolution = response.body().get(Vocabulary.Message.EVOLUTION);
    this.clusterBy = response.texts(Vocabulary.ResponseKey.CLUSTER_BY);
  }

  private static boolean isMetadata(Channel.Response response) {
    return response.body().get(Vocabulary.ResponseKey.IS_METADATA).asBoolean();
  }

  public static Map<String, String> texts(JsonNode object) {
    Map<String, String> found = new HashMap<>();
    for (Iterator<String> it = object.fieldNames(); it.hasNext(); ) {
      String key = it.next();
      found.put(key, object.get(key).asText());
    }
    return found;
  }

  /** A table, which Spark from 4.2 on asks which changes it can make. */
  public static PlakeTable of(
      Channel channel, Identifier identifier, Channel.Response response, boolean isPinned,
      Map<String, String> more) {
    return made("EvolvingTable", channel, identifier, response, isPinned, more);
  }

  /**
   * The newest version. To a program it says that its rows can be changed, and by which columns
   * they are clustered; not to the analyzer: {@code RowStatements} makes the targets of its
   * statements, and it would show the columns as {@code PARTITIONED BY (cluster_by(...))}.
   */
  public static PlakeTable newest(Channel channel, Identifier identifier, boolean isOfQuery)
      throws NoSuchTableException {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.LOAD, identifier);
    Channel.Response response = QueryVersions.read(channel, request);
    if (isOfQuery) {
      ((ObjectNode) response.body()).putArray(Vocabulary.ResponseKey.CLUSTER_BY);
    }
    return made(
        isOfQuery || isMetadata(response) ? "EvolvingTable" : "EvolvingTable$ChangeableTable",
        channel, identifier, response, false, Map.of());
  }

  private static PlakeTable made(
      String kind, Channel channel, Identifier identifier, Channel.Response response, boolean isPinned,
      Map<String, String> more) {
    return SchemaEvolution.IS_ASKED
        ? (PlakeTable) SchemaEvolution.made(
            PlakeTable.class.getPackageName() + "." + kind, channel, identifier, response,
            isPinned, more)
        : new PlakeTable(channel, identifier, response, isPinned, more);
  }

  /** With the lengths of CHAR and VARCHAR columns, which {@code DESCRIBE} shows. */
  @Override
  public Column[] columns() {
    var declared = CharVarcharUtils.getRawSchema(schema).fields();
    Column[] columns = super.columns();
    for (int i = 0; i < columns.length; i++) {
      Column column = columns[i];
      if (!declared[i].dataType().equals(column.dataType())) {
        columns[i] = Column.create(
            column.name(), declared[i].dataType(), column.nullable(), column.comment(),
            column.defaultValue(), column.metadataInJSON());
      }
      String value = isOfStatement || isDescribed ? null : defaults.get(column.name());
      if (value != null) {
        columns[i] = Column.create(
            column.name(), columns[i].dataType(), column.nullable(), column.comment(),
            new ColumnDefaultValue(value, column.defaultValue().getValue()),
            column.metadataInJSON());
      }
      columns[i] = ComputedColumns.shown(columns[i], computed, isOfStatement, isDescribed);
    }
    return columns;
  }

  /** How columns are computed that a statement may leave out, by name. */
  public JsonNode computed() {
    return computed;
  }

  /** The columns of the primary key; empty: there is none. */
  public List<String> primaryKey() {
    return primaryKey;
  }

  /** The options by which the data source finds this table, with those of one query. */
  public CaseInsensitiveStringMap with(CaseInsensitiveStringMap given) {
    Map<String, String> all = withoutPlace(given);
    all.keySet().removeIf(PlakeTable::namesVersion);
    all.putAll(options);
    if (evolution != null) {
      SealedOptions.put(all, Vocabulary.Message.EVOLUTION, evolution);
    }
    return new CaseInsensitiveStringMap(all);
  }

  @Override
  public PythonDataSourceV2 frameFor(CaseInsensitiveStringMap given) {
    Map<String, String> more = withoutPlace(given);
    if (isPinned) { // Spark has read these before it asked for the table
      more.keySet().removeIf(PlakeTable::namesVersion);
    }
    if (more.isEmpty()) {
      return frame;
    }
    CaseInsensitiveStringMap key = new CaseInsensitiveStringMap(more);
    synchronized (frames) {
      PythonDataSourceV2 found = frames.get(key);
      if (found == null) {
        ObjectNode request = Channel.about(evolution == null ? Vocabulary.RequestKind.LOAD
            : Vocabulary.RequestKind.EVOLVE, identifier)
            .put(Vocabulary.RequestKey.VERSION, Long.toString(version));
        request.set(Vocabulary.RequestKey.CHANGES, evolution);
        found = channel.read(request, more).frame();
        frames.put(key, found);
      }
      return found;
    }
  }

  /**
   * The options of one query or write.
   *
   * <p>A path among them is ignored, as Spark's own tables do. Another catalog or branch is
   * refused.
   */
  public static Map<String, String> withoutPlace(CaseInsensitiveStringMap given) {
    if (given.containsKey(Vocabulary.Place.CATALOG)
        || given.containsKey(Vocabulary.Place.WAREHOUSE)) {
      throw Refusal.because("The options " + Vocabulary.Place.CATALOG + " and "
          + Vocabulary.Place.WAREHOUSE + " are settings of Spark's catalog, and not of one query.");
    }
    if (given.containsKey(BRANCH)) { // it would be read at a version, and with columns, of this one
      throw Refusal.because("The option " + BRANCH + " is for load() and save(). A branch of a table"
          + " is a table, such as plake.sales.orders.branch_audit.");
    }
    Map<String, String> found = new HashMap<>(given.asCaseSensitiveMap());
    found.keySet().removeIf(Vocabulary.Place.PATH::equalsIgnoreCase);
    return found;
  }

  private static boolean namesVersion(String option) {
    return VERSIONS.contains(option.toLowerCase(Locale.ROOT));
  }

  /**
   * What commits of this table changed.
   *
   * @param given options that tell which commits
   * @throws org.apache.spark.sql.AnalysisException there is no such range, undeclared
   */
  public ChangesTable changes(Map<String, String> given) {
    return ChangesTable.of(channel, Channel.about(null, identifier), given);
  }

  /** The newest version, as plake knows it now. */
  public long newestVersion() {
    Channel.Response response = channel.read(Channel.about(Vocabulary.RequestKind.LOAD, identifier));
    return response.body().get(Vocabulary.ResponseKey.AT).asLong();
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String toString() {
    return name;
  }

  /**
   * The partition columns. Without any, the columns by which rows are clustered: Spark has one or
   * the other, and compares them with what a writer names.
   */
  @Override
  public Transform[] partitioning() {
    if (partitions.length > 0 || clusterBy.isEmpty() || isOfStatement) {
      return partitions.clone();
    }
    List<String> columns = List.of(schema.fieldNames());
    return new Transform[] {new ClusterByTransform(asScala(clusterBy.stream()
        .map(name -> Expressions.column(columns.contains(name) ? Refusal.quoted(name) : name))
        .toList()).toList())};
  }

  @Override
  public StructType partitionSchema() {
    StructType found = new StructType();
    for (Transform column : partitions) {
      found = found.add(schema.apply(column.references()[0].fieldNames()[0]));
    }
    return found;
  }

  @Override
  public JsonNode partitionRows() {
    ObjectNode request = Channel.about(Vocabulary.RequestKind.LIST_PARTITIONS, identifier)
        .put(Vocabulary.RequestKey.VERSION, Long.toString(version));
    return channel.read(request).body().get(Vocabulary.ResponseKey.ROWS);
  }

  @Override
  public Constraint[] constraints() {
    return constraints.clone();
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    if (isMetadata) {
      return EnumSet.of(TableCapability.BATCH_READ);
    }
    Set<TableCapability> all = EnumSet.copyOf(super.capabilities());
    all.add(TableCapability.OVERWRITE_BY_FILTER);
    all.add(TableCapability.OVERWRITE_DYNAMIC);
    if (!isPinned) {
      all.add(TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);
    }
    return all;
  }

  /** Streams use this builder, and queries that are planned without {@code IsolateScans}. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return new Unpruned(given);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (isMetadata) {
      throw Refusal.because(name + " tells about a table and cannot be written.");
    }
    return new TableWrites(schema, partitions.length > 0, info, with(info.options()));
  }

  @Override
  public boolean truncateTable() {
    truncate(Channel.about(Vocabulary.RequestKind.TRUNCATE, identifier));
    return true;
  }

  @Override
  public void delete(ConditionData rows) {
    if (!rows.isWhole()) {
      throw Refusal.because("plake cannot tell which rows of " + name
          + " these partitions have: DELETE the rows.");
    }
    ObjectNode command = Channel.about(Vocabulary.RequestKind.TRUNCATE, identifier);
    command.set(Vocabulary.RequestKey.ROWS, Envelope.list(rows.terms()));
    truncate(command);
  }

  private void truncate(ObjectNode command) {
    command.set(Vocabulary.RequestKey.SETTINGS, Channel.settings());
    channel.change(command);
  }

  /**
   * In a transaction another one than outside: Spark, from 4.2 on, takes what is cached of a name
   * for every table of the name and the id. Spark 4.1 has no such method.
   */
  public String id() {
    return Channel.isInTransaction() ? options.get(Vocabulary.Place.PATH) : null;
  }

  /** Spark finds a cached plan by the equality of its tables. */
  @Override
  public boolean equals(Object other) {
    return other instanceof PlakeTable that && version == that.version
        && name.equals(that.name) && options.equals(that.options) && schema.equals(that.schema);
  }

  @Override
  public int hashCode() {
    return name.hashCode() + Long.hashCode(version);
  }

  /** Spark's own scan, which reads all columns; one of plake's where it needs others too. */
  private final class Unpruned implements ScanBuilder, SupportsPushDownRequiredColumns {
    private final CaseInsensitiveStringMap given;
    private StructType required = schema();

    Unpruned(CaseInsensitiveStringMap given) {
      this.given = given;
    }

    @Override
    public void pruneColumns(StructType required) {
      this.required = required;
    }

    @Override
    public Scan build() {
      PythonDataSourceV2 source = frameFor(given);
      for (var field : hidden().values()) {
        if (List.of(required.fieldNames()).contains(field.name())) {
          IsolatedScanBuilder scan = new IsolatedScanBuilder(
              source, schema(), with(given), null, hidden());
          scan.pruneColumns(required);
          return scan.build();
        }
      }
      return new PythonTable(source, Relations.SOURCE, schema())
          .newScanBuilder(with(given)).build();
    }
  }
}
