#!/usr/bin/env bash
# setup.sh GROUP... — makes sure that what Weft needs is there; silent and fast when it is.
# Groups: build, test, bench, demo, fuzz. On Debian and its relatives the missing packages are installed by name;
# elsewhere, or without the right to, they are listed and the exit status is 1. What was installed by other means (a
# oneDNN of your own, say) is found by its probe and left alone.
set -u

# group  package         probe (command, pkg-config module, header)
needs="
build  gcc              cmd:cc
build  libc6-dev        header:stdlib.h
build  make             cmd:make
build  cmake            cmd:cmake
build  ninja-build      cmd:ninja
build  pkg-config       cmd:pkg-config
build  libdnnl-dev      header:oneapi/dnnl/dnnl.h
build  libjansson-dev   pc:jansson
build  libfyaml-dev     pc:libfyaml
build  libxxhash-dev    pc:libxxhash
test   libcmocka-dev    pc:cmocka
test   python3          cmd:python3
test   libopenmpi-dev   pc:ompi-c
test   openmpi-bin      cmd:mpirun.openmpi
test   libmpich-dev     pc:mpich
test   mpich            cmd:mpirun.mpich
bench  python3          cmd:python3
bench  valgrind         cmd:valgrind
demo   bible-kjv        cmd:bible
fuzz   clang            cmd:clang
fuzz   libclang-rt-14-dev  link:fuzzer
"
case "${WEFT_CC:-}" in
*clang*) needs+="
build  clang            cmd:clang
build  libomp-dev       header:omp.h
" ;;
esac

probe() {
  case "$1" in
  cmd:cc) command -v "${WEFT_CC:-cc}" ;;
  cmd:*) command -v "${1#cmd:}" ;;
  pc:*) command -v pkg-config && pkg-config --exists "${1#pc:}" ;;
  link:*) echo "int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }" |
    clang -fsanitize="${1#link:}" -x c -o /dev/null - ;;
  header:*) echo "#include <${1#header:}>" | "${WEFT_CC:-cc}" -E -x c - ;;
  esac >/dev/null 2>&1
}

wanted=() probes=()
while read -r group package check; do
  for g in "$@"; do
    if [ "$g" = "$group" ]; then wanted+=("$package") probes+=("$check"); fi
  done
done <<<"$needs"
[ "${#wanted[@]}" -gt 0 ] || { echo "setup.sh: name one or more of: build test bench demo fuzz" >&2; exit 1; }

# One query for all of them: this is the whole cost on a machine that is set up.
installed=" "
if command -v dpkg-query >/dev/null; then
  installed=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' "${wanted[@]}" 2>/dev/null)"
fi
missing=()
for i in "${!wanted[@]}"; do
  case "$installed" in
  *" installed:${wanted[i]} "*) ;;
  *) probe "${probes[i]}" || missing+=("${wanted[i]}") ;;
  esac
done
[ "${#missing[@]}" -gt 0 ] || exit 0

give_up() {
  echo "setup: $1" >&2
  echo "setup: missing: ${missing[*]}   (names of Debian's packages)" >&2
  echo "  Debian, Ubuntu:  apt-get install -y --no-install-recommends ${missing[*]}" >&2
  echo "  Fedora:          dnf install gcc make cmake ninja-build pkgconf" \
    "onednn-devel jansson-devel libfyaml-devel xxhash-devel libcmocka-devel python3 openmpi-devel mpich-devel" >&2
  echo "  Arch:            pacman -S gcc make cmake ninja pkgconf" \
    "onednn jansson libfyaml xxhash cmocka python openmpi" >&2
  case " ${missing[*]} " in
  *" bible-kjv "*)
    echo "  Without bible-kjv: make, then ${BUILD:-build}/weft train examples/demo.yaml --data YOUR.txt" >&2 ;;
  esac
  exit 1
}

command -v apt-get >/dev/null || give_up "this system has no apt-get to install packages with"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || give_up "installing packages needs root, and there is no sudo"
  [ -t 0 ] || sudo -n true 2>/dev/null || give_up "installing packages needs root, and sudo asks for a password"
  as_root=(sudo)
fi

echo "setup: installing ${missing[*]}"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
# An update that fails (no network) is no reason to stop: the packages may be in the cache.
"${as_root[@]}" apt-get update >"$log" 2>&1 ||
  echo "setup: apt-get update failed; trying with the lists that are here" >&2
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" \
  >"$log" 2>&1 </dev/null; then
  tail -n 5 "$log" >&2
  give_up "apt-get could not install them"
fi
