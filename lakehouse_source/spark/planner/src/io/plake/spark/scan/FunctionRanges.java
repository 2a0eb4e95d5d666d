package io.plake.spark.scan;

import io.plake.spark.core.Rewrite;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.temporal.ChronoUnit;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.TruncDate;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.expressions.Year;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.collection.Iterator;

/**
 * Turns conditions on dates and times inside of functions into ranges of the column itself, which
 * bounds can answer: {@code year(d) = 2024}, {@code cast(ts AS DATE) >= DATE '2024-05-01'},
 * {@code date_trunc('month', ts) = ..}, {@code trunc(d, 'year') < ..}.
 *
 * <p>Such a function f never falls where its column grows: f(x) >= v from some x on, f(x) > v from
 * a later one on. Both are searched for with f itself. The range replaces the condition, with which
 * it agrees for every x and NULL. Where clocks of the zone that Spark put into f change near an end
 * (local days can then repeat), the end is moved by two days and the condition stays beside it.
 */
final class FunctionRanges {
  private static final int MOST_VALUES = 50;
  private static final Duration NEAR = Duration.ofDays(3);
  private static final long MARGIN = 2; // days
  private static final long FIRST = LocalDate.of(1, 1, 1).toEpochDay();
  private static final long LAST = LocalDate.of(9990, 1, 1).toEpochDay();
  private static final long DAY = ChronoUnit.DAYS.getDuration().toNanos() / 1000; // microseconds

  private FunctionRanges() {}

  /** The condition with ranges where it can have them; true for the same rows. */
  static Expression rewrite(Expression condition) {
    if (condition instanceof And) {
      And and = (And) condition;
      return new And(rewrite(and.left()), rewrite(and.right()));
    }
    if (condition instanceof Or) {
      Or or = (Or) condition;
      return new Or(rewrite(or.left()), rewrite(or.right()));
    }
    Range range = null;
    if (condition instanceof BinaryComparison) {
      range = ofComparison((BinaryComparison) condition);
    } else if (condition instanceof In) {
      range = ofList(((In) condition).value(), ((In) condition).list().iterator());
    } else if (condition instanceof InSet) {
      InSet in = (InSet) condition;
      DataType type = in.child().dataType();
      range = ofList(in.child(), in.hset().iterator().map(value -> new Literal(value, type)));
    }
    if (range == null) {
      return condition;
    }
    return range.exact ? range.condition : new And(condition, range.condition);
  }

  /** A condition that follows from another one or, if exact, is the same. */
  private record Range(Expression condition, boolean exact) {}

  private static Range ofComparison(BinaryComparison comparison) {
    boolean turned = comparison.left() instanceof Literal;
    Climb climb = Climb.of(turned ? comparison.right() : comparison.left());
    Object value = value(turned ? comparison.left() : comparison.right());
    if (climb == null || value == null) {
      return null;
    }
    if (comparison instanceof EqualTo) {
      return climb.equal(value);
    }
    boolean less = comparison instanceof LessThan || comparison instanceof LessThanOrEqual;
    boolean strict = comparison instanceof LessThan || comparison instanceof GreaterThan;
    if (!less && !strict && !(comparison instanceof GreaterThanOrEqual)) {
      return null; // null-safe equality
    }
    // Of f(x) < v and f(x) >= v the border is the first x with f(x) >= v; of the others, > v.
    boolean below = less != turned;
    return climb.side(value, below, below != strict);
  }

  private static Range ofList(Expression function, Iterator<? extends Expression> values) {
    Climb climb = Climb.of(function);
    Range all = null;
    for (int count = 0; climb != null && values.hasNext(); count++) {
      Object value = value(values.next());
      Range one = value == null || count == MOST_VALUES ? null : climb.equal(value);
      if (one == null) {
        return null;
      }
      all = all == null ? one
          : new Range(new Or(all.condition, one.condition), all.exact && one.exact);
    }
    return all;
  }

  private static Object value(Expression literal) {
    return literal instanceof Literal ? ((Literal) literal).value() : null;
  }

  /**
   * A function of one column that never falls.
   *
   * @param bound the function over a row that has only the column
   * @param rules null: no zone has a part in it
   */
  private record Climb(Expression column, Expression bound, ZoneRules rules) {

    static Climb of(Expression function) {
      ZoneRules rules = null;
      Expression at = function;
      while (!(at instanceof Attribute) && !(at instanceof GetStructField)) {
        Expression below = below(at);
        if (below == null) {
          return null;
        }
        boolean zoned = DataTypes.TimestampType.equals(at.dataType())
            != DataTypes.TimestampType.equals(below.dataType()) || at instanceof TruncTimestamp;
        if (zoned && rules != null) {
          return null;
        }
        if (zoned) {
          String zone = ((TimeZoneAwareExpression) at).timeZoneId().get();
          rules = DateTimeUtils.getZoneId(zone).getRules();
        }
        at = below;
      }
      if (at == function || !isMoment(at.dataType())) {
        return null;
      }
      Expression column = at;
      BoundReference place = new BoundReference(0, column.dataType(), true);
      return new Climb(column, function.transformUp(
          new Rewrite<>(node -> node.equals(column) ? place : node)), rules);
    }

    /** What a function follows in order; null: it is not known to. */
    private static Expression below(Expression function) {
      if (function instanceof Year) {
        return ((Year) function).child();
      }
      if (function instanceof Cast && isMoment(function.dataType())) {
        Expression of = ((Cast) function).child();
        return isMoment(of.dataType()) ? of : null;
      }
      if (function instanceof TruncTimestamp && value(((TruncTimestamp) function).format()) != null) {
        return ((TruncTimestamp) function).timestamp();
      }
      if (function instanceof TruncDate && value(((TruncDate) function).format()) != null) {
        return ((TruncDate) function).date();
      }
      return null;
    }

    private static boolean isMoment(DataType type) {
      return DataTypes.DateType.equals(type) || DataTypes.TimestampType.equals(type)
          || DataTypes.TimestampNTZType.equals(type);
    }

    Range equal(Object value) {
      Range from = side(value, false, false);
      Range below = side(value, true, true);
      return from == null || below == null ? null
          : new Range(new And(from.condition, below.condition), from.exact && below.exact);
    }

    /** The column before the first x with f(x) >= v or, if past, f(x) > v; or from there on. */
    Range side(Object value, boolean below, boolean past) {
      long low = FIRST * unit();
      long high = LAST * unit();
      if (isAt(low, value, past) || !isAt(high, value, past)) {
        return null;
      }
      while (high - low > 1) {
        long middle = low + (high - low) / 2;
        if (isAt(middle, value, past)) {
          high = middle;
        } else {
          low = middle;
        }
      }
      boolean exact = isCalm(high);
      long moved = exact ? 0 : MARGIN * unit();
      Expression end = literal(below ? high + moved : high - moved);
      return new Range(
          below ? new LessThan(column, end) : new GreaterThanOrEqual(column, end), exact);
    }

    @SuppressWarnings("unchecked")
    private boolean isAt(long x, Object value, boolean past) {
      Object found = bound.eval(new GenericInternalRow(new Object[] {literal(x).value()}));
      // NULL, where the unit of a function is not known, is at no value.
      return found != null && ((Comparable<Object>) found).compareTo(value) >= (past ? 1 : 0);
    }

    /** How many values of the column a day has. */
    private long unit() {
      return DataTypes.DateType.equals(column.dataType()) ? 1 : DAY;
    }

    private Literal literal(long x) {
      DataType type = column.dataType();
      return new Literal(DataTypes.DateType.equals(type) ? (Object) (int) x : (Object) x, type);
    }

    /** Tells whether no clock of the zone changes near a value of the column. */
    private boolean isCalm(long x) {
      if (rules == null) {
        return true;
      }
      Instant at = Instant.EPOCH.plus(x * (DAY / unit()), ChronoUnit.MICROS);
      ZoneOffsetTransition change = rules.nextTransition(at.minus(NEAR));
      return change == null || change.getInstant().isAfter(at.plus(NEAR));
    }
  }
}
