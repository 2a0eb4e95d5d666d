package io.plake.spark.scan;

import java.time.DayOfWeek;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.time.temporal.TemporalAdjusters;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.Locale;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.TruncDate;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.expressions.Year;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import scala.Option;
import scala.collection.Iterator;

/**
 * Turns conditions on dates and times inside of functions into ranges of the column itself, which
 * bounds can answer: {@code year(d) = 2024}, {@code cast(ts AS DATE) >= DATE '2024-05-01'},
 * {@code date_trunc('month', ts) = ..}, {@code trunc(d, 'year') < ..}.
 *
 * <p>Such a function f climbs in steps: f(x) >= v from some x on, f(x) > v from a later one on.
 * Both are the start of a day, week, month.. in the zone that Spark put into the expression. The
 * range replaces the condition, with which it agrees for every x and NULL. Where clocks of the zone
 * change within two days of a start (local days can then repeat), the start is moved by two days
 * and the condition stays beside the range.
 */
final class FunctionRanges {
  private static final int MOST_VALUES = 50;
  private static final long DAY = 86_400_000_000L; // microseconds
  private static final long MARGIN = 2 * DAY;

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
    Step step = Step.of(turned ? comparison.right() : comparison.left());
    Expression other = turned ? comparison.left() : comparison.right();
    if (step == null || !(other instanceof Literal) || ((Literal) other).value() == null) {
      return null;
    }
    LocalDateTime value = step.local(((Literal) other).value());
    if (value == null) {
      return null;
    }
    if (comparison instanceof EqualTo) {
      return step.equal(value);
    }
    boolean less = comparison instanceof LessThan || comparison instanceof LessThanOrEqual;
    boolean strict = comparison instanceof LessThan || comparison instanceof GreaterThan;
    if (!less && !strict && !(comparison instanceof GreaterThanOrEqual)) {
      return null; // null-safe equality
    }
    // Of f(x) < v and f(x) >= v the border is the first x with f(x) >= v; of the others, > v.
    boolean below = less != turned;
    return below ? step.below(value, !strict) : step.from(value, strict);
  }

  private static Range ofList(Expression function, Iterator<? extends Expression> values) {
    Step step = Step.of(function);
    Range all = null;
    for (int count = 0; step != null && values.hasNext(); count++) {
      Expression value = values.next();
      boolean plain = value instanceof Literal && ((Literal) value).value() != null;
      LocalDateTime local = plain ? step.local(((Literal) value).value()) : null;
      if (local == null || count == MOST_VALUES) {
        return null;
      }
      Range one = step.equal(local);
      all = all == null ? one
          : new Range(new Or(all.condition, one.condition), all.exact && one.exact);
    }
    return all;
  }

  /**
   * A function of one column that climbs in steps of a calendar unit.
   *
   * @param rules null: the column holds dates, or times without zone
   */
  private record Step(Expression column, String unit, ZoneRules rules, DataType result) {

    static Step of(Expression function) {
      if (function instanceof Year) {
        Expression of = ((Year) function).child();
        Step days = of instanceof Cast ? of(of) : null;
        return days != null ? new Step(days.column, "YEAR", days.rules, DataTypes.IntegerType)
            : onColumn(of, DataTypes.DateType, "YEAR", null, DataTypes.IntegerType);
      }
      if (function instanceof Cast && DataTypes.DateType.equals(function.dataType())) {
        Cast cast = (Cast) function;
        Step zoned = onColumn(
            cast.child(), DataTypes.TimestampType, "DAY", cast.timeZoneId(), DataTypes.DateType);
        return zoned != null ? zoned
            : onColumn(cast.child(), DataTypes.TimestampNTZType, "DAY", null, DataTypes.DateType);
      }
      if (function instanceof TruncTimestamp) {
        TruncTimestamp trunc = (TruncTimestamp) function;
        return onColumn(trunc.timestamp(), DataTypes.TimestampType,
            unit(trunc.format(), true), trunc.timeZoneId(), DataTypes.TimestampType);
      }
      if (function instanceof TruncDate) {
        TruncDate trunc = (TruncDate) function;
        return onColumn(trunc.date(), DataTypes.DateType, unit(trunc.format(), false), null,
            DataTypes.DateType);
      }
      return null;
    }

    private static Step onColumn(
        Expression column, DataType type, String unit, Option<String> zone, DataType result) {
      boolean plain = column instanceof Attribute || column instanceof GetStructField;
      if (!plain || !type.equals(column.dataType()) || unit == null
          || zone != null && zone.isEmpty()) {
        return null;
      }
      ZoneId id = zone == null ? null : DateTimeUtils.getZoneId(zone.get());
      return new Step(column, unit, id == null ? null : id.getRules(), result);
    }

    /** Spark's words for units, those of {@code trunc} or of {@code date_trunc}; else null. */
    private static String unit(Expression format, boolean timestamps) {
      if (!(format instanceof Literal) || ((Literal) format).value() == null) {
        return null;
      }
      switch (((Literal) format).value().toString().toUpperCase(Locale.ROOT)) {
        case "YEAR":
        case "YYYY":
        case "YY":
          return "YEAR";
        case "QUARTER":
          return "QUARTER";
        case "MONTH":
        case "MON":
        case "MM":
          return "MONTH";
        case "WEEK":
          return "WEEK";
        case "DAY":
        case "DD":
          return timestamps ? "DAY" : null;
        case "HOUR":
          return timestamps ? "HOUR" : null;
        default:
          return null;
      }
    }

    /** A result of the function as local time; null where a calendar does not reach. */
    LocalDateTime local(Object value) {
      LocalDateTime found;
      if (DataTypes.IntegerType.equals(result)) {
        int year = (Integer) value;
        found = year < 1 || year > 9990 ? null : LocalDate.of(year, 1, 1).atStartOfDay();
      } else if (DataTypes.DateType.equals(result)) {
        found = LocalDate.ofEpochDay((Integer) value).atStartOfDay();
      } else {
        Instant instant = instant((Long) value);
        found = LocalDateTime.ofInstant(instant, rules.getOffset(instant));
      }
      return found == null || found.getYear() < 1 || found.getYear() > 9990 ? null : found;
    }

    Range equal(LocalDateTime value) {
      Range from = from(value, false);
      Range below = below(value, true);
      return new Range(new And(from.condition, below.condition), from.exact && below.exact);
    }

    /** f(x) >= value, or f(x) > value. */
    Range from(LocalDateTime value, boolean strict) {
      LocalDateTime border = border(value, strict);
      boolean exact = isCalm(border);
      return new Range(
          new GreaterThanOrEqual(column, literal(border, exact ? 0 : -MARGIN)), exact);
    }

    /** f(x) < value, or f(x) <= value. */
    Range below(LocalDateTime value, boolean inclusive) {
      LocalDateTime border = border(value, inclusive);
      boolean exact = isCalm(border);
      return new Range(new LessThan(column, literal(border, exact ? 0 : MARGIN)), exact);
    }

    /** The first local time at which the function is at, or past, a value. */
    private LocalDateTime border(LocalDateTime value, boolean past) {
      LocalDateTime start = start(value);
      return past || start.isBefore(value) ? next(start) : start;
    }

    private LocalDateTime start(LocalDateTime time) {
      LocalDate day = time.toLocalDate();
      switch (unit) {
        case "YEAR":
          return day.withDayOfYear(1).atStartOfDay();
        case "QUARTER":
          return day.withMonth((day.getMonthValue() - 1) / 3 * 3 + 1).withDayOfMonth(1)
              .atStartOfDay();
        case "MONTH":
          return day.withDayOfMonth(1).atStartOfDay();
        case "WEEK":
          return day.with(TemporalAdjusters.previousOrSame(DayOfWeek.MONDAY)).atStartOfDay();
        case "HOUR":
          return time.truncatedTo(ChronoUnit.HOURS);
        default:
          return day.atTime(LocalTime.MIDNIGHT);
      }
    }

    private LocalDateTime next(LocalDateTime start) {
      switch (unit) {
        case "YEAR":
          return start.plusYears(1);
        case "QUARTER":
          return start.plusMonths(3);
        case "MONTH":
          return start.plusMonths(1);
        case "WEEK":
          return start.plusWeeks(1);
        case "HOUR":
          return start.plusHours(1);
        default:
          return start.plusDays(1);
      }
    }

    /** Tells whether no clock of the zone changes near a local time. */
    private boolean isCalm(LocalDateTime border) {
      if (rules == null) {
        return true;
      }
      Instant at = border.toInstant(rules.getOffset(border));
      ZoneOffsetTransition change = rules.nextTransition(at.minus(2, ChronoUnit.DAYS));
      return change == null || change.getInstant().isAfter(at.plus(2, ChronoUnit.DAYS));
    }

    /** A local time, moved, as a value of the column. */
    private Literal literal(LocalDateTime border, long moved) {
      DataType type = column.dataType();
      if (DataTypes.DateType.equals(type)) {
        return new Literal((int) border.toLocalDate().toEpochDay(), type);
      }
      ZoneOffset offset = rules == null ? ZoneOffset.UTC : rules.getOffset(border);
      Instant at = border.toInstant(offset);
      return new Literal(at.getEpochSecond() * 1_000_000L + at.getNano() / 1000 + moved, type);
    }

    private static Instant instant(long micros) {
      return Instant.ofEpochSecond(
          Math.floorDiv(micros, 1_000_000L), Math.floorMod(micros, 1_000_000L) * 1000);
    }
  }
}
