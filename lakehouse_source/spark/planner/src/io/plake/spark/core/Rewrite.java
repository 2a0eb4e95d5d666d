package io.plake.spark.core;

import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import scala.Function1;
import scala.Product;
import scala.runtime.AbstractPartialFunction;

/** A function over the nodes of a tree as Spark wants it. A node that it returns as it is stays. */
public final class Rewrite<N extends TreeNode<N>> extends AbstractPartialFunction<N, N> {
  private final UnaryOperator<N> change;

  public Rewrite(UnaryOperator<N> change) {
    this.change = change;
  }

  /** A node with some arguments of its constructor changed. Each version of Spark has others. */
  public static <N extends TreeNode<N> & Product> N copy(N node, UnaryOperator<Object> change) {
    Object[] arguments = new Object[node.productArity()];
    boolean isChanged = false;
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = change.apply(node.productElement(i));
      isChanged |= arguments[i] != node.productElement(i);
    }
    return isChanged ? node.makeCopy(arguments) : node;
  }

  @Override
  public boolean isDefinedAt(N node) {
    return true;
  }

  @Override
  @SuppressWarnings("unchecked") // Spark's B1 is the type of its nodes
  public <A1 extends N, B1> B1 applyOrElse(A1 node, Function1<A1, B1> otherwise) {
    return (B1) change.apply(node);
  }
}
