#!/bin/sh
# Sees to it that a JDK of at least version 17 is there. Spark 4 needs its Java, and the test of
# the planner extension needs its javac. Uses what is installed, else installs a headless JDK where
# the system's package manager may (as root, or by sudo where PLAKE_SUDO=1), and prints each command
# before it runs, else says what to do. plake-planner.jar is compiled with 17, and
# only a javac of that version gives the same bytes: where CI is set, tries to have 17 besides
# another JDK that is there.
set -u
here=$(dirname "$0")
have_jdk() {
    . "$here/java_home.sh"
    [ "${JAVA_MAJOR:-0}" -ge 17 ] && [ -n "${JAVAC:-}" ]
}
if have_jdk && { [ -z "${CI:-}" ] || [ "$JAVAC_MAJOR" -eq 17 ]; }; then
    exit 0
fi
echo "A JDK 17 (any newer will do outside of CI) was not found (java: ${JAVA_MAJOR:-none}, javac: ${JAVAC_MAJOR:-none}); trying to install one." >&2
as_root() { # says what it runs; without PLAKE_SUDO=1 nobody becomes root here
    if [ "$(id -u)" -eq 0 ]; then
        echo "running: $*" >&2
        "$@"
    elif [ "${PLAKE_SUDO:-}" = 1 ] && command -v sudo >/dev/null 2>&1; then
        echo "running: sudo -n $*" >&2
        sudo -n "$@"
    else
        echo "not running as root: $* (PLAKE_SUDO=1 allows sudo)" >&2
        return 1
    fi
}
install_first() { # COMMAND... -- PACKAGE...: install the first package that there is
    command=
    while [ "$1" != -- ]; do command="$command $1"; shift; done
    shift
    for package in "$@"; do
        # shellcheck disable=SC2086 # the command is words
        as_root $command "$package" && return 0
    done
    return 1
}
install_jdk() {
    if command -v apt-get >/dev/null 2>&1; then
        as_root apt-get update -q && install_first apt-get install -q -y --no-install-recommends -- \
            openjdk-17-jdk-headless openjdk-21-jdk-headless openjdk-25-jdk-headless
    elif command -v dnf >/dev/null 2>&1; then
        # The headless packages of Fedora have no javac.
        install_first dnf install -q -y -- \
            java-17-openjdk-devel java-21-openjdk-devel java-25-openjdk-devel
    elif command -v apk >/dev/null 2>&1; then
        install_first apk add --quiet -- openjdk17-jdk openjdk21-jdk
    elif command -v zypper >/dev/null 2>&1; then
        install_first zypper --quiet install -y -- java-17-openjdk-devel java-21-openjdk-devel
    elif command -v brew >/dev/null 2>&1; then
        echo "running: brew install --quiet openjdk@17" >&2
        brew install --quiet openjdk@17
    else return 1
    fi
}
install_jdk >&2
if have_jdk; then
    exit 0
fi
cat >&2 <<'MESSAGE'
Spark 4 needs Java, version 17 or newer, and a JDK could not be installed from here.
Install one and run this again:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jdk-headless
  Fedora, RHEL     sudo dnf install java-17-openjdk-devel
  macOS            brew install openjdk@17
or set JAVA_HOME to one that is there already, or let this run such a command: PLAKE_SUDO=1.
MESSAGE
exit 1
