package io.plake.spark.catalog;

import io.plake.spark.core.Refusal;
import io.plake.spark.core.Vocabulary;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.AsOfTimestamp;
import org.apache.spark.sql.catalyst.analysis.TimeTravelSpec;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DatetimeType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.Tuple3;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The table function {@code table_changes('t', start [, end])}, as Delta has it.
 *
 * <p>It becomes a relation, which is planned as any other. A bound is a version, a tag or a time; text
 * that Spark casts to a timestamp is a time in the session's zone.
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
    List<Expression> arguments = CollectionConverters.asJava(given);
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
    ChangesByName.Found found = ChangesByName.find(session, parts(session, name));
    if (found == null) {
      throw Refusal.because(USAGE + "There is no table of plake that is named " + name + ".");
    }
    return found.changes(options);
  }

  private static List<String> parts(SparkSession session, String name) {
    try {
      return CollectionConverters.asJava(
          session.sessionState().sqlParser().parseMultipartIdentifier(name));
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
    String zone = SQLConf.get().sessionLocalTimeZone();
    if (isVersion) {
      options.put(version, String.valueOf(bound.eval(null)));
    } else if (!isTime) {
      String text = String.valueOf(bound.eval(null)).trim();
      Option<Object> moment = DateTimeUtils.stringToTimestamp(
          UTF8String.fromString(text), DateTimeUtils.getZoneId(zone));
      if (moment.isDefined() && !text.matches("\\d+")) {
        options.put(timestamp, ChangesTable.text((Long) moment.get()));
      } else {
        options.put(version, text);
      }
    } else {
      TimeTravelSpec moment =
          TimeTravelSpec.create(Option.apply(bound), Option.empty(), zone).get();
      options.put(timestamp, ChangesTable.text(((AsOfTimestamp) moment).timestamp()));
    }
  }
}
