package io.plake.spark.core;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * The properties of a table, which also answer by which name OpenLineage knows it.
 *
 * <p>OpenLineage asks a table for {@code openlineage.dataset.namespace} and {@code .name}. The name
 * of a dataset is its place, by OpenLineage's rules of naming, whatever Spark calls it, so that all
 * engines name one dataset alike. It follows from the location: no listing of the properties has
 * it, so {@code SHOW CREATE TABLE} and {@code LIKE} give it to no other table. A user's property of
 * that name counts more.
 */
public final class LineageNames extends HashMap<String, String> {
  private static final long serialVersionUID = 1;
  private static final String NAMESPACE = "openlineage.dataset.namespace";
  private static final String NAME = "openlineage.dataset.name";

  /** OpenLineage has one scheme for each store. */
  private static final Map<String, String> SCHEMES =
      Map.of("s3a", "s3", "s3n", "s3", "abfs", "abfss", "wasb", "wasbs");

  /** A name in a store is a key. */
  private static final Set<String> STORES = Set.of("s3", "gs", "abfss", "wasbs");

  private final String namespace;
  private final String name;

  /** The properties of a table, and its location or the path by which a user loads it. */
  public LineageNames(Map<String, String> properties, String location) {
    super(properties);
    URI place = place(location);
    String path = place == null || place.getPath() == null ? "" : place.getPath().replaceAll("/+$", "");
    if (path.isEmpty()) {
      namespace = null;
      name = null;
      return;
    }
    String scheme = SCHEMES.getOrDefault(place.getScheme(), place.getScheme());
    boolean isLocal = scheme.equals("file");
    namespace = isLocal ? scheme : scheme + "://" + place.getAuthority();
    name = STORES.contains(scheme) ? path.substring(1) : path;
  }

  private static URI place(String location) {
    try {
      boolean isPath = location != null && location.startsWith("/");
      URI found = location == null ? null : isPath
          ? new URI("file", "", location.split("#branch=")[0], null) : new URI(location);
      return found == null || found.getScheme() == null ? null : found;
    } catch (URISyntaxException e) {
      return null;
    }
  }

  @Override
  public String get(Object key) {
    String found = super.get(key);
    return found != null ? found : NAMESPACE.equals(key) ? namespace : NAME.equals(key) ? name : null;
  }

  @Override
  public boolean containsKey(Object key) {
    return get(key) != null;
  }
}
