package io.plake.spark.core;

import static scala.jdk.javaapi.CollectionConverters.asScala;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.QueryContext;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.connector.catalog.Identifier;
import scala.Option;

/** Errors of plake as Spark's exceptions, with plake's text. */
public final class Refusal {
  /** The exception for an error that plake answered; thrown here, undeclared. */
  @SuppressWarnings("serial")
  static RuntimeException of(JsonNode error) {
    String message = "[" + error.get(Vocabulary.Failed.CODE).asText() + "] "
        + error.get(Vocabulary.Failed.MESSAGE).asText();
    throw undeclared(switch (error.get(Vocabulary.Failed.KIND).asText()) {
      case Vocabulary.Failure.NO_TABLE -> new NoSuchTableException(NOWHERE) {
        @Override
        public String getMessage() {
          return message;
        }
      };
      case Vocabulary.Failure.TABLE_EXISTS -> new TableAlreadyExistsException(NOWHERE) {
        @Override
        public String getMessage() {
          return message;
        }
      };
      // Programs look for the condition in the text: dbt, before it makes a namespace.
      case Vocabulary.Failure.NO_NAMESPACE -> new NoSuchNamespaceException(new String[] {""}) {
        @Override
        public String getMessage() {
          return "[" + getCondition() + "] " + message;
        }
      };
      case Vocabulary.Failure.NAMESPACE_EXISTS ->
          new NamespaceAlreadyExistsException(new String[] {""}) {
            @Override
            public String getMessage() {
              return message;
            }
          };
      case Vocabulary.Failure.NAMESPACE_NOT_EMPTY ->
          new NonEmptyNamespaceException(new String[0], message, Option.empty());
      case Vocabulary.Failure.OTHER -> new Refused(null, message, null, facts(error));
      default -> new IllegalStateException(message);
    });
  }

  /** The attributes of an error, which Spark calls the parameters of its message. */
  private static Map<String, String> facts(JsonNode error) {
    Map<String, String> found = new TreeMap<>();
    JsonNode facts = error.get(Vocabulary.Failed.FACTS);
    facts.fieldNames().forEachRemaining(name -> {
      JsonNode value = facts.get(name);
      if (!value.isNull()) {
        found.put(name, value.isValueNode() ? value.asText() : value.toString());
      }
    });
    return found;
  }

  /** Refuses what the user asked for. */
  public static RuntimeException because(String message) {
    return undeclared(new Refused(null, message, null, Map.of()));
  }

  /** How a Python traceback ends that an error of plake ended; the first group names its class. */
  private static final Pattern TRACEBACK =
      Pattern.compile("(?s)(?:.*\\n)?lakehouse_source\\.errors\\.(\\w+)Error: (.*)");

  /** Python goes on like this where another error followed. */
  private static final String MORE = "\nTraceback (most recent call last):";

  /** Python goes on like this where another error came while the first one was handled. */
  private static final String MEANWHILE = "\n\nDuring handling of the above exception";

  /**
   * What Spark's worker raises after an error of plake, and tells nothing: it stops a reader that
   * there is not, of a stream that does not begin, or the writer of a batch of a stream, which
   * begins while it is pickled, was not pickled.
   */
  private static final Pattern OF_WORKER = Pattern.compile(
      "\\n(?:UnboundLocalError: [^\\n]*'reader'"
          + "|_pickle\\.PicklingError: Could not serialize object: )");

  /** Spark's conditions for errors of Python data sources, and the parameter with the traceback. */
  private static final Set<String> CONDITIONS =
      Set.of("PYTHON_DATA_SOURCE_ERROR", "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR");

  private static final String TRACEBACK_PARAMETER = "msg";

  /**
   * Throws what Spark raised for an error of plake again, with plake's text; others as they are.
   */
  static RuntimeException raised(Exception raised) {
    throw undeclared(retold(raised, true));
  }

  /** The same in a stream: the query shows the text only of an exception without a condition. */
  static RuntimeException ofStream(Exception raised) {
    throw undeclared(retold(raised, false));
  }

  /** What Spark raised, with the text of plake where that is its cause. */
  static Throwable retold(Throwable raised, boolean withCondition) {
    if (raised instanceof SparkThrowable error && error.getCondition() != null
        && CONDITIONS.contains(error.getCondition())) {
      String text = error.getMessageParameters().get(TRACEBACK_PARAMETER);
      var found = TRACEBACK.matcher(withoutErrorOfWorker(text == null ? "" : text).strip());
      if (found.matches() && !found.group(2).contains(MORE)) {
        String message = "[" + code(found.group(1)) + "] " + found.group(2);
        return new Refused(withCondition ? error.getCondition() : null, message, raised, Map.of());
      }
    }
    return raised;
  }

  private static String withoutErrorOfWorker(String traceback) {
    int end = traceback.lastIndexOf(MEANWHILE);
    return end >= 0 && OF_WORKER.matcher(traceback.substring(end)).find()
        ? traceback.substring(0, end) : traceback;
  }

  /** The code of an error of plake, which follows from the name of its class. */
  private static String code(String name) {
    return "PLAKE_" + name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toUpperCase(Locale.ROOT);
  }

  /** Says that a procedure does not exist, and which do. */
  public static RuntimeException noProcedure(
      String catalog, Identifier procedure, List<String> known) {
    String routine = Stream.of(new String[] {catalog}, procedure.namespace(),
        new String[] {procedure.name()}).flatMap(Stream::of).map(Refusal::quoted)
        .collect(Collectors.joining("."));
    return undeclared(new Refused("ROUTINE_NOT_FOUND", "[ROUTINE_NOT_FOUND] The routine " + routine
        + " cannot be found. Procedures of " + catalog + "." + Vocabulary.Namespace.SYSTEM + " are "
        + String.join(", ", known) + ". SQLSTATE: 42883", null, Map.of()));
  }

  /** A name in backquotes: the methods of Spark that take one parse it. */
  public static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }

  /** Throws an exception that Spark expects and Java would want declared. */
  @SuppressWarnings("unchecked")
  public static <E extends Throwable> RuntimeException undeclared(Throwable exception) throws E {
    throw (E) exception;
  }

  private static final Identifier NOWHERE = Identifier.of(new String[0], "");

  private static final class Refused extends AnalysisException {
    private static final long serialVersionUID = 1;

    /** @param condition Spark's name for the error, and cause; null where there is none */
    Refused(String condition, String message, Throwable cause, Map<String, String> facts) {
      super(message, Option.empty(), Option.empty(), Option.apply(cause), Option.apply(condition),
          scala.collection.immutable.Map.from(asScala(facts)),
          new QueryContext[0]);
    }

    /** Spark would make another exception, of which PySpark logs a text that it does not have. */
    @Override
    public AnalysisException withPosition(Origin origin) {
      return this;
    }
  }
}
