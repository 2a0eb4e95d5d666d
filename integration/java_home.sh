# Sourced. Sets JAVA_MAJOR to the version of the Java that Spark would use, and JAVA_HOME to
# another one where that is too old and a newer one is installed. Sets JAVAC to a compiler of
# version 17 or newer and JAVAC_MAJOR to its version: one of 17 if there is one, perhaps that of
# another Java. Both are empty where there is none.
java_major() {
    "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\)[."].*/\1/p' | head -n 1
}
javac_major() {
    "$1" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p' | head -n 1
}
JAVA_MAJOR=
if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
    JAVA_MAJOR=$(java_major "$JAVA_HOME/bin/java")
elif command -v java >/dev/null 2>&1; then
    JAVA_MAJOR=$(java_major java)
fi
if [ "${JAVA_MAJOR:-0}" -lt 17 ]; then
    for home in /usr/lib/jvm/* /opt/homebrew/opt/openjdk@* /usr/local/opt/openjdk@*; do
        [ -x "$home/bin/java" ] || continue
        found=$(java_major "$home/bin/java")
        if [ "${found:-0}" -ge 17 ]; then
            JAVA_HOME=$home
            export JAVA_HOME
            JAVA_MAJOR=$found
            break
        fi
    done
fi
JAVAC=
JAVAC_MAJOR=
for candidate in "${JAVA_HOME:-}/bin/javac" "$(command -v javac 2>/dev/null)" \
    /usr/lib/jvm/*/bin/javac /opt/homebrew/opt/openjdk@*/bin/javac /usr/local/opt/openjdk@*/bin/javac; do
    [ -x "$candidate" ] || continue
    found=$(javac_major "$candidate")
    if [ "${found:-0}" -eq 17 ] || { [ "${found:-0}" -gt 17 ] && [ -z "$JAVAC" ]; }; then
        JAVAC=$candidate
        JAVAC_MAJOR=$found
        [ "$found" -ne 17 ] || break
    fi
done
