package io.plake.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.Option;
import scala.collection.immutable.Map$;

/** Errors of plake as Spark's exceptions, with plake's text. */
final class Refusal {
  private Refusal() {}

  /** The exception for an error that plake answered; thrown here, undeclared. */
  static RuntimeException of(JsonNode error) {
    String message = error.get(Vocabulary.Answer.MESSAGE).asText();
    switch (error.get(Vocabulary.Answer.KIND).asText()) {
      case Vocabulary.Failure.NO_TABLE:
        throw undeclared(new NoTable(message));
      case Vocabulary.Failure.TABLE_EXISTS:
        throw undeclared(new TableExists(message));
      case Vocabulary.Failure.NO_NAMESPACE:
        throw undeclared(new NoNamespace(message));
      case Vocabulary.Failure.NAMESPACE_EXISTS:
        throw undeclared(new NamespaceExists(message));
      case Vocabulary.Failure.NAMESPACE_NOT_EMPTY:
        throw undeclared(new NonEmptyNamespaceException(new String[0], message, Option.empty()));
      case Vocabulary.Failure.OTHER:
      default:
        throw because(message);
    }
  }

  /** Refuses what the user asked for. */
  static RuntimeException because(String message) {
    return undeclared(new Refused(null, message));
  }

  /** Says that a procedure does not exist, and which do. */
  static RuntimeException noProcedure(String catalog, Identifier procedure, JsonNode names) {
    List<String> parts = new ArrayList<>(List.of(catalog));
    parts.addAll(Arrays.asList(procedure.namespace()));
    parts.add(procedure.name());
    List<String> known = new ArrayList<>();
    names.forEach(name -> known.add(name.asText()));
    String routine = parts.stream().map(PlakeTable::quoted).collect(Collectors.joining("."));
    return undeclared(new Refused("ROUTINE_NOT_FOUND", "[ROUTINE_NOT_FOUND] The routine " + routine
        + " cannot be found. Procedures of " + catalog + "." + Vocabulary.Namespace.SYSTEM + " are "
        + String.join(", ", known) + ". SQLSTATE: 42883"));
  }

  /** Throws an exception that Spark expects and Java would want declared. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> RuntimeException undeclared(Throwable exception) throws E {
    throw (E) exception;
  }

  private static final Identifier NOWHERE = Identifier.of(new String[0], "");

  private static final class Refused extends AnalysisException {
    private static final long serialVersionUID = 1;

    /** @param condition Spark's name for the error; null where it has none */
    Refused(String condition, String message) {
      super(message, Option.empty(), Option.empty(), Option.empty(), Option.apply(condition),
          Map$.MODULE$.empty(), new QueryContext[0]);
    }
  }

  private static final class NoTable extends NoSuchTableException {
    private static final long serialVersionUID = 1;
    private final String text;

    NoTable(String text) {
      super(NOWHERE);
      this.text = text;
    }

    @Override
    public String getMessage() {
      return text;
    }
  }

  private static final class TableExists extends TableAlreadyExistsException {
    private static final long serialVersionUID = 1;
    private final String text;

    TableExists(String text) {
      super(NOWHERE);
      this.text = text;
    }

    @Override
    public String getMessage() {
      return text;
    }
  }

  private static final class NoNamespace extends NoSuchNamespaceException {
    private static final long serialVersionUID = 1;
    private final String text;

    NoNamespace(String text) {
      super(new String[] {""});
      this.text = text;
    }

    @Override
    public String getMessage() {
      return text;
    }
  }

  private static final class NamespaceExists extends NamespaceAlreadyExistsException {
    private static final long serialVersionUID = 1;
    private final String text;

    NamespaceExists(String text) {
      super(new String[] {""});
      this.text = text;
    }

    @Override
    public String getMessage() {
      return text;
    }
  }
}
