package io.plake.spark.statements;

import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * Undoes the casts that Spark has put around structs that an UPDATE or MERGE assigns.
 *
 * <p>A cast takes fields by their places: {@code SET s = named_struct('b', 1, 'a', 2)} would give 1 to
 * the first field. Spark casts where it sees an assignment before the target is a table whose rows
 * can be changed. For such a table it brings fields together by name.
 */
final class StructCasts {
  static Expression undone(Expression node) {
    if (!(node instanceof Assignment given) || !given.key().resolved()
        || !given.key().dataType().existsRecursively(type -> type instanceof StructType)) {
      return node;
    }
    // Spark's cast may be below checks of the length of texts. One that is not possible by places is
    // not resolved.
    Option<Expression> cast = given.value().find(part -> part instanceof Cast one
        && one.getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined());
    return cast.isEmpty() || !((Cast) cast.get()).child().resolved() ? node
        : new Assignment(given.key(), ((Cast) cast.get()).child());
  }
}
