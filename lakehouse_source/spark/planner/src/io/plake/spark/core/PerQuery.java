package io.plake.spark.core;

import java.lang.ref.WeakReference;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;

/**
 * What is kept for the query that is analysed. Its analysis runs in one thread, in several passes.
 *
 * <p>Spark has one cache of relations for each query, shared by its subqueries and views.
 */
public final class PerQuery<T> {
  private final ThreadLocal<Kept<T>> last = new ThreadLocal<>();
  private final Supplier<T> first;

  /** @param first makes what a query begins with */
  public PerQuery(Supplier<T> first) {
    this.first = first;
  }

  public T get() {
    Object query = AnalysisContext.get().relationCache();
    Kept<T> kept = last.get();
    if (kept == null || kept.query().get() != query) {
      kept = new Kept<>(new WeakReference<>(query), first.get());
      last.set(kept);
    }
    return kept.value();
  }

  private record Kept<T>(WeakReference<Object> query, T value) {}
}
