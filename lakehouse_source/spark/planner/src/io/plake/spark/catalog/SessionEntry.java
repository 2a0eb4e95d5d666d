package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Relations;
import io.plake.spark.core.Vocabulary;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.catalog.CatalogTableType;
import org.apache.spark.sql.catalyst.catalog.CatalogUtils;
import org.apache.spark.sql.catalyst.catalog.SessionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.catalog.V1Table;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Utils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/** A table of plake in Spark's session catalog: a name, a location and the options of its store. */
public final class SessionEntry {
  private static final String STORAGE = "storage.";

  private final String[] name;
  private final Map<String, String> options;

  /** What plake is asked about: the location, which is a name of one part. */
  public final Identifier path;

  public final Channel channel;

  /** Whether Spark deletes the folder when the table is dropped. */
  public final boolean isManaged;

  private SessionEntry(
      String catalog, Identifier table, String path, Map<String, String> options, boolean isManaged) {
    this.name = new String[] {
      catalog, String.join(".", table.namespace()), table.name()
    };
    this.path = Identifier.of(new String[0], path);
    this.options = options;
    this.channel = new Channel(catalog, options);
    this.isManaged = isManaged;
  }

  // --- where a table is ------------------------------------------------------------

  /** Whether a table of the metastore is one of plake. */
  public static boolean isOurs(Table found) {
    return found instanceof V1Table entry && isOurs(entry.v1Table());
  }

  static boolean isOurs(CatalogTable entry) {
    return entry.provider().exists(Relations.SOURCE::equalsIgnoreCase);
  }

  /** What the metastore has of a table of plake; null: the name is of something else. */
  public static CatalogTable find(SparkSession session, List<String> parts) {
    int last = parts.size() - 1;
    SessionCatalog metastore = session.sessionState().catalog();
    TableIdentifier name =
        new TableIdentifier(parts.get(last), Option.apply(last == 0 ? null : parts.get(0)));
    try {
      CatalogTable entry = last > 1 || metastore.isTempView(name) || !metastore.tableExists(name)
          ? null : metastore.getTableMetadata(name);
      return entry != null && isOurs(entry) ? entry : null;
    } catch (AnalysisException e) { // dropped just now, which Spark will say
      return null;
    }
  }

  /** Whether a table that is created is one of plake. */
  public static boolean isOurs(Map<String, String> properties) {
    return Relations.SOURCE.equalsIgnoreCase(properties.get(TableCatalog.PROP_PROVIDER));
  }

  /** @param catalog the name of Spark's session catalog */
  public static SessionEntry of(String catalog, Identifier table, V1Table found) {
    CatalogTable entry = found.v1Table();
    return new SessionEntry(catalog, table, pathOf(entry), optionsOf(entry),
        entry.tableType().equals(CatalogTableType.MANAGED()));
  }

  /** Where an entry of the metastore says that its table is. */
  static String pathOf(CatalogTable entry) {
    return pathOf(entry.storage().locationUri().get());
  }

  /** The options {@code catalog} and {@code storage.NAME} of an entry of the metastore. */
  static Map<String, String> optionsOf(CatalogTable entry) {
    Map<String, String> options = new TreeMap<>(asJava(entry.storage().properties()));
    options.keySet().removeIf(key -> !isOption(key));
    return options;
  }

  /**
   * The entry that a table with some properties gets; null where it will be in Spark's warehouse.
   *
   * @throws org.apache.spark.sql.AnalysisException a wrong location or option, undeclared
   */
  public static SessionEntry toCreate(
      String catalog, Identifier table, Map<String, String> properties) {
    Map<String, String> options = new HashMap<>();
    for (Map.Entry<String, String> text : properties.entrySet()) {
      if (text.getKey().startsWith(TableCatalog.OPTION_PREFIX)) {
        String option = text.getKey().substring(TableCatalog.OPTION_PREFIX.length());
        if (isOption(option)) {
          options.put(option, text.getValue());
        } else if (!option.equalsIgnoreCase(Vocabulary.Place.PATH)) {
          throw Refusal.because("A table of plake in spark_catalog has the options catalog and"
              + " storage.NAME only, and not " + option + ". Properties of it are TBLPROPERTIES.");
        }
      }
    }
    String location = properties.get(TableCatalog.PROP_LOCATION);
    boolean isManaged = location == null
        || "true".equalsIgnoreCase(properties.get(TableCatalog.PROP_IS_MANAGED_LOCATION));
    if (isManaged && options.containsKey(Vocabulary.Place.CATALOG)) {
      throw Refusal.because("A table with the option catalog needs a LOCATION: Spark deletes the"
          + " folder of a table without one, and the catalog would still list it.");
    }
    return isManaged ? null
        : new SessionEntry(catalog, table, pathOf(qualified(location)), options, false);
  }

  private static boolean isOption(String key) {
    return key.equalsIgnoreCase(Vocabulary.Place.CATALOG)
        || key.toLowerCase(Locale.ROOT).startsWith(STORAGE);
  }

  /** The properties without options, which Spark puts there twice. */
  public static Map<String, String> withoutOptions(Map<String, String> properties) {
    Map<String, String> found = new HashMap<>(properties);
    found.keySet().removeIf(key -> key.startsWith(TableCatalog.OPTION_PREFIX)
        || properties.containsKey(TableCatalog.OPTION_PREFIX + key));
    return found;
  }

  /** The location as the metastore will keep it. */
  private static URI qualified(String location) {
    URI given = CatalogUtils.stringToURI(location);
    if (given.isAbsolute()) {
      return given;
    }
    Path path = new Path(given);
    if (!path.isAbsolute()) {
      throw Refusal.because("LOCATION '" + location + "' is relative: begin it with / or a scheme.");
    }
    try {
      return path.getFileSystem(SparkSession.active().sessionState().newHadoopConf())
          .makeQualified(path).toUri();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** A location as plake takes it: what follows {@code file:} in a URI has escapes. */
  private static String pathOf(URI location) {
    return "file".equals(location.getScheme())
        ? location.getPath() : CatalogUtils.URIToString(location);
  }

  // --- what plake is asked -----------------------------------------------------------

  public String shown() {
    return String.join(".", name);
  }

  public ObjectNode about(String command) {
    return named(Channel.about(command, path));
  }

  /** The request, with the name that errors and plans show. */
  public ObjectNode named(ObjectNode request) {
    for (String part : name) {
      request.withArray(Vocabulary.RequestKey.SHOWN).add(part);
    }
    return request;
  }

  public PlakeTable table(Channel.Response response, boolean isPinned) {
    String kind = isManaged ? TableCatalog.PROP_IS_MANAGED_LOCATION : TableCatalog.PROP_EXTERNAL;
    return PlakeTable.of(channel, path, response, isPinned, Map.of(kind, "true"));
  }

  /**
   * Whether there is a dataset at the location.
   *
   * @throws org.apache.spark.sql.AnalysisException an option holds a password, undeclared
   */
  public boolean exists() {
    ObjectNode request = about(Vocabulary.RequestKind.EXISTS).put(Vocabulary.RequestKey.MUST_BE_NEW, false);
    var body = channel.read(request).body();
    var concealed = body.get(Vocabulary.ResponseKey.OPTIONS).get(Vocabulary.Place.CATALOG);
    if (concealed != null && !options.containsValue(concealed.asText())) {
      throw Refusal.because("The option catalog holds a password, and the metastore would keep it:"
          + " put the URL into an environment variable and give env:NAME.");
    }
    return body.get(Vocabulary.ResponseKey.EXISTS).asBoolean();
  }

  // --- tables of other formats -------------------------------------------------------

  /**
   * A table as Spark's own session catalog loads it.
   *
   * <p>Spark's catalog leaves out the last step, to ask the format for its table, where the session
   * catalog is not its own.
   */
  public static Table ofSpark(Table found) {
    if (!(found instanceof V1Table table) || table.v1Table().provider().isEmpty()) {
      return found;
    }
    CatalogTable entry = table.v1Table();
    Option<TableProvider> requested =
        DataSourceV2Utils.getTableProvider(entry.provider().get(), SQLConf.get());
    if (requested.isEmpty()) {
      return found;
    }
    Map<String, String> texts = new HashMap<>(asJava(entry.properties()));
    if (entry.storage().locationUri().isDefined()) {
      texts.put(
          Vocabulary.Place.PATH, CatalogUtils.URIToString(entry.storage().locationUri().get()));
    }
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(texts);
    TableProvider provider = requested.get();
    return provider.supportsExternalMetadata()
        ? provider.getTable(entry.schema(), found.partitioning(), options.asCaseSensitiveMap())
        : provider.getTable(
            provider.inferSchema(options), provider.inferPartitioning(options),
            options.asCaseSensitiveMap());
  }
}
