package io.plake.spark.catalog;

import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.TableCatalog;

/**
 * The properties of a table, which also answer by which name OpenLineage knows it.
 *
 * <p>OpenLineage asks a table for {@code openlineage.dataset.namespace} and {@code .name}. The name of
 * a dataset is its place, by OpenLineage's rules of naming, whatever Spark calls it, so that
 * all engines name one dataset alike. It follows from the location: no listing of the properties has
 * it, so {@code SHOW CREATE TABLE} and {@code LIKE} give it to no other table. A user's property of
 * that name counts more.
 */
final class LineageNames extends HashMap<String, String> {
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

  LineageNames(Map<String, String> properties) {
    super(properties);
    URI place = place(properties.get(TableCatalog.PROP_LOCATION));
    String path = place == null ? null : place.getPath();
    if (path == null || path.isEmpty()) {
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
      URI found = location == null ? null : URI.create(location);
      return found == null || found.getScheme() == null ? null : found;
    } catch (IllegalArgumentException e) {
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
