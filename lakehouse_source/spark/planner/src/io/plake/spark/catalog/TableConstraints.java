package io.plake.spark.catalog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.constraints.Check;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;
import org.apache.spark.sql.connector.catalog.constraints.Unique;
import org.apache.spark.sql.connector.expressions.NamedReference;

/** CHECK constraints and keys, as Spark hands them over and shows them. */
final class TableConstraints {
  /**
   * A constraint that plake enforces, where it writes files, with one meaning for all writers.
   *
   * <p>It is no {@code Check}: Spark would check the rows too, in the time zone of the session.
   * Spark's own keys cannot say that they are enforced.
   */
  private record Enforced(String name, String sql) implements Constraint {
    @Override
    public boolean enforced() {
      return true;
    }

    @Override
    public ValidationStatus validationStatus() {
      return ValidationStatus.VALID;
    }

    @Override
    public boolean rely() {
      return true;
    }

    @Override
    public String toDDL() {
      return "CONSTRAINT " + Refusal.quoted(name) + " " + toDescription();
    }

    @Override
    public String toDescription() {
      return sql + " ENFORCED";
    }
  }

  /** What a table has, by name. */
  static Constraint[] of(JsonNode texts) {
    List<Constraint> found = new ArrayList<>();
    for (Iterator<String> it = texts.fieldNames(); it.hasNext(); ) {
      String name = it.next();
      found.add(new Enforced(name, texts.get(name).asText()));
    }
    return found.toArray(Constraint[]::new);
  }

  /** Those of a table that is created. */
  static void put(ObjectNode request, Constraint[] given) {
    ObjectNode texts = request.putObject(Vocabulary.RequestKey.CONSTRAINTS);
    for (Constraint one : given) {
      texts.put(one.name(), expression(one));
    }
  }

  static void add(ObjectNode request, TableChange.AddConstraint change) {
    request.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.ADD_CONSTRAINT)
        .put(Vocabulary.RequestKey.FIELD, change.constraint().name())
        .put(Vocabulary.RequestKey.VALUE, expression(change.constraint()));
  }

  static void drop(ObjectNode request, TableChange.DropConstraint change) {
    request.put(Vocabulary.RequestKey.CHANGE, Vocabulary.Change.DROP_CONSTRAINT)
        .put(Vocabulary.RequestKey.FIELD, change.name())
        .put(Vocabulary.RequestKey.IF_EXISTS, change.ifExists());
  }

  private static String expression(Constraint constraint) {
    if (constraint instanceof Check check) {
      if (check.enforced()) {
        return check.predicateSql();
      }
      throw Refusal.because("plake enforces each CHECK: leave NOT ENFORCED out of the constraint "
          + check.name() + ".");
    }
    // Spark's grammar knows keys that nobody enforces, and has no word for others. Plake enforces.
    if (constraint instanceof PrimaryKey key) {
      return "PRIMARY KEY " + list(key.columns());
    }
    if (constraint instanceof Unique key) {
      return "UNIQUE " + list(key.columns());
    }
    throw Refusal.because("plake has constraints of the kinds CHECK, PRIMARY KEY and UNIQUE, and "
        + "not " + constraint.toDDL() + ".");
  }

  private static String list(NamedReference[] columns) {
    return Arrays.stream(columns)
        .map(column -> Arrays.stream(column.fieldNames()).map(Refusal::quoted)
            .collect(Collectors.joining(".")))
        .collect(Collectors.joining(", ", "(", ")"));
  }

  private TableConstraints() {}
}
