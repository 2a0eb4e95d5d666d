package io.plake.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The one way from Spark's catalog to plake's code in Python, which knows all about tables.
 *
 * <p>A fresh data source gets the question as an option, and Spark asks it for its schema. That
 * starts or reuses a planning worker on the driver, also where the program on the driver is not
 * Python ({@code spark-sql}, Thrift and Connect servers). The answer is in the metadata of the last
 * column of the schema. The other side is {@code lakehouse_source/spark/commands.py}.
 */
final class Channel {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String catalog;
  private final Map<String, String> options;

  /**
   * @param catalog the name of the catalog in Spark
   * @param options those of the catalog, which tell plake where its own catalog is
   */
  Channel(String catalog, Map<String, String> options) {
    this.catalog = catalog;
    this.options = options;
  }

  /** What plake answered. */
  static final class Answer {
    /** The answer itself. */
    final JsonNode told;

    /** The columns of the table that was asked for. */
    final StructType columns;

    /** Its frame, at one version. */
    final PythonDataSourceV2 frame;

    private Answer(JsonNode told, StructType columns, PythonDataSourceV2 frame) {
      this.told = told;
      this.columns = columns;
      this.frame = frame;
    }
  }

  static ObjectNode object() {
    return JSON.createObjectNode();
  }

  /** The beginning of a question about a table. */
  static ObjectNode about(String command, Identifier table) {
    ObjectNode question = object().put(Vocabulary.Question.COMMAND, command);
    if (table != null) {
      add(question.putArray(Vocabulary.Question.IDENTIFIER), table);
    }
    return question;
  }

  /** Adds the parts of a name, the namespace first. */
  static void add(ArrayNode parts, Identifier table) {
    Arrays.stream(table.namespace()).forEach(parts::add);
    parts.add(table.name());
  }

  Answer ask(ObjectNode question) {
    return ask(question, Map.of());
  }

  /**
   * Asks and waits for the answer.
   *
   * @param more options of a table's frame
   * @throws org.apache.spark.sql.AnalysisException what plake refused, undeclared
   */
  Answer ask(ObjectNode question, Map<String, String> more) {
    question.put(Vocabulary.Question.CATALOG, catalog);
    Map<String, String> given = new HashMap<>(more);
    given.putAll(options);
    given.put(Vocabulary.Option.QUESTION, text(question));
    PythonDataSourceV2 source = new PlakeSource();
    StructField[] fields = source.inferSchema(new CaseInsensitiveStringMap(given)).fields();
    JsonNode told = tree(fields[fields.length - 1].metadata());
    if (told.has(Vocabulary.Answer.ERROR)) {
      throw Refusal.of(told.get(Vocabulary.Answer.ERROR));
    }
    return new Answer(
        told, new StructType(Arrays.copyOf(fields, fields.length - 1)), source);
  }

  /**
   * Runs the tasks that do the work of a procedure, and waits for them.
   *
   * @param call the question whose work it is
   * @return what the tasks tell, one text in each row
   */
  List<Row> runTasks(String call) {
    Map<String, String> given = new HashMap<>(options);
    given.put(Vocabulary.Option.TASKS, call);
    CaseInsensitiveStringMap told = new CaseInsensitiveStringMap(given);
    PythonDataSourceV2 source = new PlakeSource();
    StructType schema = source.inferSchema(told);
    DataSourceV2Relation tasks = DataSourceV2Relation.create(
        new TaskTable(source, schema), Option.empty(), Option.empty(), told, Option.empty());
    return Dataset.ofRows(
        (org.apache.spark.sql.classic.SparkSession) SparkSession.active(), tasks).collectAsList();
  }

  /** A frame that no rule of this extension knows: nothing of it can be pruned. */
  private static final class TaskTable extends PythonTable {
    TaskTable(PythonDataSourceV2 source, StructType schema) {
      super(source, IsolateScans.SOURCE, schema);
    }
  }

  private static String text(ObjectNode question) {
    try {
      return JSON.writeValueAsString(question);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  private static JsonNode tree(Metadata metadata) {
    try {
      return JSON.readTree(metadata.getString(Vocabulary.Answer.MARK));
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }
}
