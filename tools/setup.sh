# tools/setup.sh: what tools/verbatim and tools/check share. Sourced by bash with `root` set to the repository.
#   install_missing_packages [tests|browser]   installs what tools/packages.txt lists and this machine lacks; with a
#                                      word, what is marked by it, too
#   install_test_environment           installs the tests' Python packages into build/python, where pip reaches an index
#   build_preset NAME FLAGS... configures and builds a preset of CMakePresets.json; the flags are ninja's
# Everything is said on stderr. Exit code 4: the machine is in the way (as in tools/program/cli.h).

say() { printf '%s\n' "$*" >&2; }

die() {
    say "verbatim: error: $*"
    exit 4
}

# Is the command, the file, or the header below one of the usual include folders, on this machine?
is_present() {
    local folder search=${CPATH:-}
    command -v "$1" >/dev/null && return 0
    case $1 in /*) [ -e "$1" ]; return ;; esac
    for folder in /usr/include /usr/local/include "/usr/include/$(uname -m)-linux-gnu" ${search//:/ }; do
        [ -e "$folder/$1" ] && return 0
    done
    return 1
}

missing_packages() {
    local package proof use
    while read -r package proof use; do
        case $package in '' | '#'*) continue ;; esac
        [ -z "$use" ] || [ "$use" = "${1:-}" ] || continue
        is_present "$proof" || printf '%s ' "$package"
    done <"$root/tools/packages.txt"
}

# apt-get as root: directly, or with sudo, which may ask for a password only on a terminal.
apt_get() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            die "packages are missing, and there is neither root nor sudo to install them:" \
                "run \`apt-get install $missing\` as root"
        as_root=(sudo)
        [ -t 0 ] || as_root=(sudo -n)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >&2
}

install_missing_packages() {
    local missing
    missing=$(missing_packages "$@")
    missing=${missing% }
    [ -n "$missing" ] || return 0
    if ! command -v apt-get >/dev/null; then
        die "this machine lacks what these Debian 12 packages hold: $missing." \
            "There is no apt-get here: install them in this system's own way" \
            "(tools/packages.txt names the files looked for)"
    fi
    say "verbatim: installing $missing"
    apt_get update || say "verbatim: apt-get update failed, going on with the package lists that are here"
    # The list is words on purpose.
    # shellcheck disable=SC2086
    apt_get install -y --no-install-recommends $missing ||
        die "apt-get could not install them: its own message is above"
    missing=$(missing_packages "$@")
    [ -z "$missing" ] || die "installed, and yet not found: $missing (tools/packages.txt names the files looked for)"
}

# What cannot be had is skipped by the tests that need it, which say so.
install_test_environment() {
    say "verbatim: the tests' Python packages (tests/requirements.txt) in build/python"
    (cd "$root" && python3 -B tests/environment.py build/python) >&2 || true
}

# Configures quietly (all of it is shown when it fails) and builds with as many jobs as the machine has cores.
build_preset() {
    local preset=$1 folder=$root/build/$1
    shift
    mkdir -p "$folder"
    # A checkout that was moved: CMake refuses a build folder made elsewhere.
    local cache=$folder/CMakeCache.txt
    if [ -e "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
        rm -rf "$folder"
        mkdir -p "$folder"
    fi
    if ! (cd "$root" && cmake --preset "$preset") >"$folder/configure.log" 2>&1; then
        cat "$folder/configure.log" >&2
        return 1
    fi
    (cd "$root" && cmake --build --preset "$preset" -j "$(nproc)" -- "$@") >&2
}
