# Sourced by the other scripts: need_packages PACKAGE... installs the Debian packages that are not there yet.

program_packages="g++ cmake ninja-build libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev"
test_packages="libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev pkg-config python3 ccache"
format_packages="clang-format git"

# A command counts however it was installed, a library only as a package.
is_there() {
  case $1 in
    ninja-build) command -v ninja >/dev/null && return ;;
    lib*|*-dev) ;;
    *) command -v "$1" >/dev/null && return ;;
  esac
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

need_packages() {
  command -v dpkg-query >/dev/null || return 0  # not Debian: CMake says what is missing
  local package missing=() as_root=()
  for package; do
    is_there "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "Missing packages: ${missing[*]}; as root, run: apt-get update && apt-get install ${missing[*]}" >&2
      return 2
    fi
    as_root=(sudo)
  fi
  echo "installing ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -qq &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
           -o DPkg::Lock::Timeout=120 "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    rm -f "$log"
    echo "Could not install ${missing[*]}; the lines above say why." >&2
    return 2
  fi
  rm -f "$log"
}

# quietly LOG COMMAND...: shows the end of the output only if the command fails.
quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    echo "Failed: $* (all of it: $log)" >&2
    return 1
  fi
}
