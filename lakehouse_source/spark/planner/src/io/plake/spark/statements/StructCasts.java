package io.plake.spark.statements;

import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Assignment;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/**
 * Undoes the casts that Spark has put around structs that an UPDATE or MERGE assigns.
 *
 * <p>A cast takes fields by their places: {@code SET s = named_struct('b', 1, 'a', 2)} would give 1 to
 * the first field. Spark casts where it sees an assignment before the target is a table whose rows
 * can be changed. For such a table it brings fields together by name.
 */
final class StructCasts {
  private StructCasts() {}

  static Expression undone(Expression node) {
    if (!(node instanceof Assignment given) || !given.key().resolved()
        || !hasStruct(given.key().dataType())) {
      return node;
    }
    Cast cast = castIn(given.value());
    // A cast that is not possible by places is not resolved.
    return cast == null || !cast.child().resolved() ? node
        : new Assignment(given.key(), cast.child());
  }

  /** The cast that Spark put there, which may be below checks of the length of texts. */
  private static Cast castIn(Expression value) {
    if (value instanceof Cast
        && ((Cast) value).getTagValue(Cast$.MODULE$.BY_TABLE_INSERTION()).isDefined()) {
      return (Cast) value;
    }
    for (Iterator<Expression> it = value.children().iterator(); it.hasNext(); ) {
      Cast found = castIn(it.next());
      if (found != null) {
        return found;
      }
    }
    return null;
  }

  private static boolean hasStruct(DataType type) {
    if (type instanceof ArrayType) {
      return hasStruct(((ArrayType) type).elementType());
    }
    if (type instanceof MapType) {
      return hasStruct(((MapType) type).keyType()) || hasStruct(((MapType) type).valueType());
    }
    return type instanceof StructType;
  }
}
