package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The one way from Spark's catalog to plake's code in Python, which knows all about tables.
 *
 * <p>A fresh data source gets the request in its options, and Spark asks it for its schema. That
 * starts or reuses a planning worker on the driver, also where the program on the driver is not
 * Python ({@code spark-sql}, Thrift and Connect servers). The answer is in the metadata of the last
 * column of the schema. The other side is {@code lakehouse_source/spark/tables/commands.py}.
 */
public final class Channel {
  private final String catalog;
  private final Map<String, String> options;

  /**
   * @param catalog the name of the catalog in Spark
   * @param options those of the catalog, which tell plake where its own catalog is
   */
  public Channel(String catalog, Map<String, String> options) {
    this.catalog = catalog;
    this.options = options;
  }

  /** What plake answered, with the columns of the table that was asked for, and its frame. */
  public record Response(JsonNode body, StructType columns, PythonDataSourceV2 frame) {
    /** The texts of a list in the answer. */
    public List<String> texts(String key) {
      List<String> found = new ArrayList<>();
      body.get(key).forEach(text -> found.add(text.asText()));
      return found;
    }
  }

  /** The beginning of a request about a table. */
  public static ObjectNode about(String command, Identifier table) {
    ObjectNode request = Envelope.object().put(Vocabulary.RequestKey.COMMAND, command);
    if (table != null) {
      add(request.putArray(Vocabulary.RequestKey.IDENTIFIER), table);
    }
    return request;
  }

  /** Adds the parts of a name, the namespace first. */
  public static void add(ArrayNode parts, Identifier table) {
    Arrays.stream(table.namespace()).forEach(parts::add);
    parts.add(table.name());
  }

  /** Adds what the history tells of this application and of the job that it is for, as texts. */
  public static void putClaims(Map<String, String> options) {
    ObjectNode claims = Envelope.object()
        .put(Vocabulary.Claim.APPLICATION, SparkEnv.get().conf().get("spark.app.id", ""));
    for (String name : LINEAGE) {
      claims.put(name, SQLConf.get().getConfString("spark.openlineage." + name, ""));
    }
    SealedOptions.put(options, Vocabulary.Message.CLAIMS, claims);
  }

  private static final List<String> LINEAGE = List.of(
      Vocabulary.Claim.JOB_NAMESPACE, Vocabulary.Claim.JOB, Vocabulary.Claim.RUN,
      Vocabulary.Claim.ROOT_JOB_NAMESPACE, Vocabulary.Claim.ROOT_JOB, Vocabulary.Claim.ROOT_RUN);

  /** The session's settings of statements. */
  public static ObjectNode settings() {
    ObjectNode settings = Envelope.object();
    asJava(SQLConf.get().getAllConfs()).forEach((name, value) -> {
      if (name.startsWith(Vocabulary.Setting.STATEMENT)) {
        settings.put(name.substring(Vocabulary.Setting.STATEMENT.length()), value);
      }
    });
    return settings;
  }

  /** Whether the session has an open transaction; what it does not take is refused. */
  public static boolean isInTransaction() {
    return transaction() != null;
  }

  /** @throws org.apache.spark.sql.AnalysisException a transaction is open, undeclared */
  public static void refuseInTransaction(String statement) {
    if (isInTransaction()) {
      throw Refusal.because("[PLAKE_INVALID_OPTION] option 'transaction': " + statement
          + " is not for a transaction of the session: do it before it or after it.");
    }
  }

  private static String transaction() {
    return SQLConf.get().getConfString(Vocabulary.Setting.TRANSACTION, null);
  }

  /** Adds to options of any call the session's transaction, where one is open. */
  static CaseInsensitiveStringMap inTransaction(CaseInsensitiveStringMap given) {
    if (!isInTransaction()) {
      return given;
    }
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    SealedOptions.put(options, Vocabulary.Message.TRANSACTION, transaction());
    return new CaseInsensitiveStringMap(options);
  }

  /** Adds to options of a write what the session's settings say of it, also where they do not. */
  static CaseInsensitiveStringMap withSettings(CaseInsensitiveStringMap given) {
    Map<String, String> options = new HashMap<>(given.asCaseSensitiveMap());
    SealedOptions.put(options, Vocabulary.Message.SETTINGS, settings());
    SealedOptions.put(
        options, Vocabulary.Message.PARTITION_MODE,
        SQLConf.get().getConfString("spark.sql.sources.partitionOverwriteMode", "static"));
    return new CaseInsensitiveStringMap(options);
  }

  /** Asks what changes nothing: Python refuses every other request that comes this way. */
  public Response read(ObjectNode request) {
    return read(request, Map.of());
  }

  /**
   * Asks what changes nothing, and waits for the answer.
   *
   * @param more options of a table's frame
   * @throws org.apache.spark.sql.AnalysisException what plake refused, undeclared
   */
  public Response read(ObjectNode request, Map<String, String> more) {
    return send(Vocabulary.Message.REQUEST, request, more);
  }

  /**
   * Does what a statement says. No read calls this.
   *
   * @throws org.apache.spark.sql.AnalysisException what plake refused, undeclared
   */
  public Response change(ObjectNode command) {
    LastCommit.forget();
    return send(Vocabulary.Message.COMMAND, command, Map.of());
  }

  private Response send(String key, ObjectNode request, Map<String, String> more) {
    request.put(Vocabulary.RequestKey.CATALOG, catalog);
    Map<String, String> given = new HashMap<>(more);
    given.putAll(options);
    SealedOptions.put(given, key, request);
    putClaims(given);
    PythonDataSourceV2 source = new PlakeSource();
    var fields = source.inferSchema(new CaseInsensitiveStringMap(given)).fields();
    JsonNode body = Envelope.response(
        fields[fields.length - 1].metadata().getString(Vocabulary.Envelope.NAME));
    return new Response(body, new StructType(Arrays.copyOf(fields, fields.length - 1)), source);
  }

  /**
   * Runs the tasks that do the work of a procedure, and waits for them.
   *
   * @param call the request whose work it is
   * @return what the tasks tell, one text in each row
   */
  public List<Row> runTasks(ObjectNode call) {
    Map<String, String> given = new HashMap<>(options);
    SealedOptions.put(given, Vocabulary.Message.TASKS, call);
    PythonDataSourceV2 source = new PlakeSource();
    StructType schema = source.inferSchema(new CaseInsensitiveStringMap(given));
    // The source has its options: none is in the plan. No rule of this extension knows the table's
    // class, so that nothing of it is pruned.
    DataSourceV2Relation tasks = DataSourceV2Relation.create(
        new PythonTable(source, Relations.SOURCE, schema) {}, Option.empty(), Option.empty(),
        CaseInsensitiveStringMap.empty(), Option.empty());
    return Dataset.ofRows(
        (org.apache.spark.sql.classic.SparkSession) SparkSession.active(), tasks).collectAsList();
  }
}
