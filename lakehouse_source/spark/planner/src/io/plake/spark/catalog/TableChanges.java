package io.plake.spark.catalog;

import static scala.jdk.javaapi.CollectionConverters.asJava;

import io.plake.spark.core.PlakeCatalogs;
import io.plake.spark.core.Refusal;
import io.plake.spark.core.SessionTimes;
import io.plake.spark.core.Vocabulary;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.AsOfTimestamp;
import org.apache.spark.sql.catalyst.analysis.TimeTravelSpec;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DatetimeType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.Seq;

/**
 * The table function {@code table_changes('t', start [, end])}, as Delta has it.
 *
 * <p>It becomes a relation, which is planned as any other. A bound is a version, a tag or a time;
 * text that Spark casts to a timestamp is a time in the session's zone.
 */
public final class TableChanges {
  private static final String NAME = "table_changes";
  private static final String USAGE = NAME + " takes the name or the path of a table, the first"
      + " version and, if you like, the last one, such as " + NAME + "('sales.orders', 1, 3). ";

  public static void injectInto(SparkSessionExtensions extensions) {
    extensions.injectTableFunction(new Tuple3<>(
        new FunctionIdentifier(NAME), new ExpressionInfo(TableChanges.class.getName(), NAME),
        TableChanges::relation));
  }

  private static LogicalPlan relation(Seq<Expression> given) {
    List<Expression> arguments = asJava(given);
    if (arguments.size() < 2 || arguments.size() > 3) {
      throw Refusal.because(USAGE + "Arguments that were given: " + arguments.size() + ".");
    }
    Expression first = arguments.get(0);
    if (!(first.dataType() instanceof StringType) || !first.foldable()
        || first.eval(null) == null) {
      throw Refusal.because(USAGE + "This is no constant text: " + first.sql() + ".");
    }
    String name = String.valueOf(first.eval(null));
    Map<String, String> options = new HashMap<>();
    put(options, arguments.get(1), Vocabulary.Changes.STARTING_VERSION,
        Vocabulary.Changes.STARTING_TIMESTAMP);
    if (arguments.size() == 3) {
      put(options, arguments.get(2), Vocabulary.Changes.ENDING_VERSION,
          Vocabulary.Changes.ENDING_TIMESTAMP);
    }
    if (name.contains("/") && !name.contains("`")) {
      return ChangesTable.at(name, options).relation();
    }
    SparkSession session = SparkSession.active();
    return found(session, parts(session, name), name).changes(options);
  }

  /**
   * The table that a name means: as in a query, else in the catalog of plake that has it, as the
   * arguments of CALL do, which names that catalog.
   */
  private static ChangesByName.Found found(SparkSession session, List<String> parts, String name) {
    Exception unknown = null;
    try {
      ChangesByName.Found found = ChangesByName.find(session, parts);
      if (found != null) {
        return found;
      }
    } catch (Exception e) { // Scala does not declare Spark's
      unknown = e;
    }
    Map<String, ChangesByName.Found> all = new TreeMap<>();
    for (String catalog : PlakeCatalogs.names()) {
      List<String> full = new ArrayList<>(List.of(catalog));
      full.addAll(parts);
      try {
        ChangesByName.Found found = ChangesByName.find(session, full);
        if (found != null) {
          all.put(catalog, found);
        }
      } catch (Exception e) { // Scala does not declare Spark's
        continue; // this catalog has no such table
      }
    }
    if (all.size() == 1) {
      return all.values().iterator().next();
    }
    throw Refusal.because(USAGE + (all.isEmpty()
        ? "There is no table of plake that is named " + name + "."
        : "Several catalogs have a table " + name + ": name one of "
            + String.join(", ", all.keySet()) + " before it.")
        + (unknown == null ? "" : " As in a query: " + unknown.getMessage()));
  }

  private static List<String> parts(SparkSession session, String name) {
    try {
      return asJava(session.sessionState().sqlParser().parseMultipartIdentifier(name));
    } catch (ParseException e) {
      throw Refusal.undeclared(e);
    }
  }

  private static void put(
      Map<String, String> options, Expression bound, String version, String timestamp) {
    boolean isTime = bound.dataType() instanceof DatetimeType;
    boolean isVersion = bound.dataType() instanceof IntegralType;
    boolean isKnown = (isVersion || bound.dataType() instanceof StringType)
        && bound.foldable() && bound.eval(null) != null;
    if (!isTime && !isKnown) {
      throw Refusal.because(
          USAGE + "This is neither a version nor a time that is constant: " + bound.sql() + ".");
    }
    if (isVersion) {
      options.put(version, String.valueOf(bound.eval(null)));
    } else if (!isTime) {
      String text = String.valueOf(bound.eval(null)).trim();
      String moment = text.matches("\\d+") ? null : SessionTimes.instant(text);
      if (moment != null) {
        options.put(timestamp, moment);
      } else {
        options.put(version, text);
      }
    } else {
      TimeTravelSpec moment = TimeTravelSpec.create(
          Option.apply(bound), Option.empty(), SQLConf.get().sessionLocalTimeZone()).get();
      options.put(timestamp, SessionTimes.text(((AsOfTimestamp) moment).timestamp()));
    }
  }
}
