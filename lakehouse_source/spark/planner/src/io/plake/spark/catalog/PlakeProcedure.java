package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import io.plake.spark.core.Channel;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import io.plake.spark.scan.AggregateResponse;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A procedure of plake, {@code CALL plake.system.vacuum(table => 'sales.orders')}.
 *
 * <p>{@code lakehouse_source/spark/tables/procedures.py} tells which there are, what they take and
 * which rows they give, and does the work. Spark names, orders and casts the arguments, and runs a
 * procedure while it analyses the statement.
 */
public final class PlakeProcedure implements UnboundProcedure {
  private final Channel channel;
  private final String catalog;
  private final String name;
  private final String description;
  private final StructType parameters;
  private final StructType columns;

  private PlakeProcedure(Channel channel, String catalog, String name, JsonNode body) {
    this.channel = channel;
    this.catalog = catalog;
    this.name = name;
    this.description = body.get(Vocabulary.ResponseKey.DESCRIPTION).asText();
    this.parameters = schema(body.get(Vocabulary.ResponseKey.PARAMETERS));
    this.columns = schema(body.get(Vocabulary.ResponseKey.COLUMNS));
  }

  private static StructType schema(JsonNode json) {
    return (StructType) DataType.fromJson(json.asText());
  }

  /**
   * Finds a procedure; their names do not tell case.
   *
   * @throws org.apache.spark.sql.AnalysisException there is none, undeclared
   */
  public static PlakeProcedure load(Channel channel, String catalog, Identifier procedure) {
    String name = procedure.name().toLowerCase(Locale.ROOT);
    var request = Channel.about(Vocabulary.RequestKind.LOAD_PROCEDURE, null)
        .put(Vocabulary.RequestKey.PROCEDURE, name);
    JsonNode body = channel.read(request).body();
    if (isSystem(procedure.namespace()) && body.get(Vocabulary.ResponseKey.EXISTS).asBoolean()) {
      return new PlakeProcedure(channel, catalog, name, body);
    }
    throw Refusal.noProcedure(catalog, procedure, names(channel));
  }

  /** The procedures of a namespace. */
  public static Identifier[] list(Channel channel, String[] namespace) {
    if (!isSystem(namespace)) {
      return new Identifier[0];
    }
    return names(channel).stream()
        .map(name -> Identifier.of(namespace, name)).toArray(Identifier[]::new);
  }

  private static List<String> names(Channel channel) {
    return channel.read(Channel.about(Vocabulary.RequestKind.LIST_PROCEDURES, null))
        .texts(Vocabulary.ResponseKey.NAMES);
  }

  private static boolean isSystem(String[] namespace) {
    return namespace.length == 1 && namespace[0].equalsIgnoreCase(Vocabulary.Namespace.SYSTEM);
  }

  @Override
  public BoundProcedure bind(StructType arguments) {
    return new Bound(this);
  }

  @Override
  public String name() {
    return name;
  }

  /** What {@code DESCRIBE PROCEDURE} shows. */
  @Override
  public String description() {
    return description;
  }

  @Override
  public String toString() {
    return name;
  }

  /** Spark takes a procedure that is both for a bound one before it has ordered the arguments. */
  private record Bound(PlakeProcedure procedure) implements BoundProcedure {
    @Override
    public String name() {
      return procedure.name;
    }

    @Override
    public String description() {
      return procedure.description;
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public ProcedureParameter[] parameters() {
      return Arrays.stream(procedure.parameters.fields()).map(PlakeProcedure::parameter)
          .toArray(ProcedureParameter[]::new);
    }

    @Override
    public Iterator<Scan> call(InternalRow arguments) {
      return List.<Scan>of(procedure.response(arguments)).iterator();
    }

    @Override
    public String toString() {
      return procedure.name;
    }
  }

  private static ProcedureParameter parameter(StructField field) {
    ProcedureParameter.Builder made = ProcedureParameter.in(field.name(), field.dataType())
        .comment(field.getComment().get());
    if (field.metadata().contains(Vocabulary.Parameter.DEFAULT)) {
      made.defaultValue(field.metadata().getString(Vocabulary.Parameter.DEFAULT));
    }
    return made.build();
  }

  private AggregateResponse response(InternalRow arguments) {
    var request = Channel.about(Vocabulary.RequestKind.CALL, null)
        .put(Vocabulary.RequestKey.PROCEDURE, name)
        .put(Vocabulary.RequestKey.CURRENT, currentNamespace());
    var given = request.putObject(Vocabulary.RequestKey.ARGUMENTS);
    for (int i = 0; i < parameters.length(); i++) {
      StructField parameter = parameters.fields()[i];
      given.putPOJO(parameter.name(), body(parameter, arguments.get(i, parameter.dataType())));
    }
    JsonNode body = channel.change(request).body();
    if (body.has(Vocabulary.ResponseKey.TASKS)) {
      List<Row> rows = channel.runTasks(request);
      var messages = request.putArray(Vocabulary.RequestKey.MESSAGES);
      rows.forEach(row -> messages.add(row.getString(0)));
      body = channel.change(request).body();
    }
    if (body.has(Vocabulary.ResponseKey.CHANGED)) {
      refresh(body.get(Vocabulary.ResponseKey.CHANGED).asText());
    }
    JsonNode rows = body.get(Vocabulary.ResponseKey.ROWS);
    Object[][] cells = new Object[rows.size()][columns.length()];
    for (int i = 0; i < cells.length; i++) {
      for (int j = 0; j < columns.length(); j++) {
        cells[i][j] = value(rows.get(i).get(j), columns.fields()[j].dataType());
      }
    }
    return new AggregateResponse(columns, cells);
  }

  /** Lets Spark read anew what it has cached of a table, as it does after its own statements. */
  private static void refresh(String table) {
    SparkSession session = SparkSession.active();
    if (!session.sharedState().cacheManager().isEmpty()) {
      session.catalog().refreshTable(table);
    }
  }

  /** The namespace of {@code USE}, quoted, where it is one of this catalog; or null. */
  private String currentNamespace() {
    var session = SparkSession.active().catalog();
    return session.currentCatalog().equals(catalog) ? session.currentDatabase() : null;
  }

  /** An argument as JSON writes it: a timestamp as microseconds, texts as such. */
  private static Object body(StructField parameter, Object value) {
    if (value instanceof UTF8String) {
      return value.toString();
    }
    if (!(value instanceof ArrayData texts)) {
      return value;
    }
    List<String> found = new ArrayList<>();
    for (int i = 0; i < texts.numElements(); i++) {
      if (texts.isNullAt(i)) {
        throw Refusal.because("The argument " + parameter.name() + " must not hold NULL.");
      }
      found.add(texts.getUTF8String(i).toString());
    }
    return found;
  }

  private static Object value(JsonNode value, DataType type) {
    if (value.isNull()) {
      return null;
    }
    if (type instanceof ArrayType) {
      Object[] elements = new Object[value.size()];
      for (int i = 0; i < elements.length; i++) {
        elements[i] = value(value.get(i), ((ArrayType) type).elementType());
      }
      return new GenericArrayData(elements);
    }
    return AggregateResponse.value(value.asText(), type);
  }
}
