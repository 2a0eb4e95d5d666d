#!/bin/sh
# Sees to it that a Java runtime of at least version 17 is there, which Spark 4 needs:
# uses the one that is installed, else installs one where the system's package manager
# may, else says what to do.
set -u
. "$(dirname "$0")/java_home.sh"
if [ "${JAVA_MAJOR:-0}" -ge 17 ]; then
    exit 0
fi
echo "Java 17 or newer was not found (found: ${JAVA_MAJOR:-none}); trying to install it." >&2
as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo -n "$@"
    else return 1
    fi
}
install_java() {
    if command -v apt-get >/dev/null 2>&1; then
        as_root apt-get update -q && {
            as_root apt-get install -q -y --no-install-recommends openjdk-21-jre-headless ||
                as_root apt-get install -q -y --no-install-recommends openjdk-17-jre-headless
        }
    elif command -v dnf >/dev/null 2>&1; then
        as_root dnf install -q -y java-21-openjdk-headless || as_root dnf install -q -y java-17-openjdk-headless
    elif command -v apk >/dev/null 2>&1; then as_root apk add --quiet openjdk17-jre-headless
    elif command -v zypper >/dev/null 2>&1; then as_root zypper --quiet install -y java-17-openjdk-headless
    elif command -v brew >/dev/null 2>&1; then brew install --quiet openjdk@17
    else return 1
    fi
}
install_java >&2
. "$(dirname "$0")/java_home.sh"
if [ "${JAVA_MAJOR:-0}" -ge 17 ]; then
    exit 0
fi
cat >&2 <<'MESSAGE'
Spark 4 needs a Java runtime, version 17 or newer, and it could not be installed from here.
Install one and run this again:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora, RHEL     sudo dnf install java-17-openjdk-headless
  macOS            brew install openjdk@17
or set JAVA_HOME to one that is there already.
MESSAGE
exit 1
