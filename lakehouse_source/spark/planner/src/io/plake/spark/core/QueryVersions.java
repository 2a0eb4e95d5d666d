package io.plake.spark.core;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.ref.WeakReference;
import java.util.HashMap;
import java.util.Map;
import java.util.function.LongFunction;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.Analyzer;

/**
 * The version of each dataset that one query reads, by whatever names it reads it.
 *
 * <p>Who finds a dataset first, in the analysis of a query, decides for all. A version that the
 * user named is not among them.
 */
public final class QueryVersions {
  private static final PerQuery<Map<String, Long>> VERSIONS = new PerQuery<>(HashMap::new);

  private QueryVersions() {}

  /** Asks for a table, at the version that its query reads already. */
  public static Channel.Response read(Channel channel, ObjectNode request) {
    Channel.Response found = channel.read(request);
    if (found.body().get(Vocabulary.ResponseKey.IS_METADATA).asBoolean()) {
      return found;
    }
    String location = found.body().get(Vocabulary.ResponseKey.PROPERTIES).get("location").asText();
    return of(location, found, found.body().get(Vocabulary.ResponseKey.AT).asLong(),
        version -> channel.read(
            request.put(Vocabulary.RequestKey.VERSION, Long.toString(version))));
  }

  /**
   * What was found of a dataset, or the same at the version that the query reads already.
   *
   * @param version the one that was found
   */
  public static <T> T of(String location, T found, long version, LongFunction<T> at) {
    Map<String, Long> known = ofThisQuery();
    Long first = known.putIfAbsent(location, version);
    return first == null || first == version ? found : at.apply(first);
  }

  private static Map<String, Long> ofThisQuery() {
    boolean isAnalysis = StackWalker.getInstance().walk(frames -> frames.anyMatch(
        frame -> frame.getClassName().equals(Analyzer.class.getName())));
    // Else a program asks: the context of its thread never ends.
    return isAnalysis ? VERSIONS.get() : new HashMap<>();
  }

  /**
   * What is kept for the query that is analysed. Its analysis runs in one thread, in several
   * passes.
   *
   * <p>Spark has one cache of relations for each query, shared by its subqueries and views.
   */
  public static final class PerQuery<T> {
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
}
