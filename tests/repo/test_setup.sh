#!/usr/bin/env bash
# tools/setup.sh and tools/configure.sh with stand-ins for the package tools: silent when all is there, installs by name
# when something is missing, names it when it cannot, never builds with another compiler than the one
# asked for; and tools/build.sh, which drops noise and nothing else.
# labels: small noasan
set -u
root=${WEFT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

# A PATH with the few tools that the script needs and nothing else.
fresh() {
  rm -rf "$work/bin" "$work/calls"
  mkdir "$work/bin"
  for tool in bash env mktemp rm tail cat; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
  stand_in id 'echo 0'
  stand_in dpkg-query 'exit 1'
  stand_in apt-get "echo \"\$@\" >>'$work/calls'"
}

stand_in() { printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$work/bin/$1" && chmod +x "$work/bin/$1"; }

# expect NAME STATUS PART-OF-OUTPUT PART-OF-APT-CALLS ("" : must be empty)
expect() {
  local out status calls
  out=$(PATH=$work/bin "$work/bin/bash" "$root/tools/setup.sh" demo 2>&1 </dev/null)
  status=$?
  calls=$(cat "$work/calls" 2>/dev/null)
  [ "$status" = "$2" ] || { echo "$1: status $status, not $2: $out"; bad=1; }
  holds "$1, output" "$out" "$3"
  holds "$1, apt-get" "$calls" "$4"
}

holds() {
  if [ -z "$3" ]; then
    [ -z "$2" ] || { echo "$1: should be empty: $2"; bad=1; }
  else
    case "$2" in *"$3"*) ;; *) echo "$1: '$3' is not in: $2"; bad=1 ;; esac
  fi
}

fresh; stand_in dpkg-query 'echo "installed:bible-kjv "'
expect "installed" 0 "" ""
fresh; stand_in dpkg-query 'echo "config-files:bible-kjv "'
expect "removed, settings left" 0 "installing bible-kjv" "install -y --no-install-recommends bible-kjv"
fresh; stand_in bible 'exit 0'
expect "there without a package" 0 "" ""
fresh
expect "missing" 0 "setup: installing bible-kjv" "install -y --no-install-recommends bible-kjv"
fresh; stand_in apt-get '[ "$1" = update ] && exit 1; exit 0'
expect "no network for the lists" 0 "apt-get update failed" ""
fresh; stand_in apt-get 'echo "E: no such package" >&2; exit 100'
expect "apt-get fails" 1 "missing: bible-kjv" ""
fresh; rm "$work/bin/apt-get"
expect "no apt-get" 1 "pacman -S" ""
expect "no apt-get, no text" 1 "--data YOUR.txt" ""
fresh; stand_in id 'echo 1000'
expect "no rights" 1 "there is no sudo" ""
fresh; stand_in id 'echo 1000'; stand_in sudo 'exit 1'
expect "sudo wants a password" 1 "asks for a password" ""
fresh; stand_in id 'echo 1000'; stand_in sudo '[ "$1" = -n ] && exit 0; exec "$@"'
expect "sudo" 0 "installing" "install -y --no-install-recommends bible-kjv"

mkdir "$work/build"
echo 'CMAKE_C_COMPILER:FILEPATH=/usr/bin/one-cc' >"$work/build/CMakeCache.txt"
out=$(WEFT_CC=other-cc "$root/tools/configure.sh" "$work/build" 2>&1)
[ $? = 2 ] || { echo "configure: another compiler was not refused"; bad=1; }
holds "configure" "$out" "was made for /usr/bin/one-cc, not other-cc"
WEFT_CC=one-cc "$root/tools/configure.sh" "$work/build" || { echo "configure: the same compiler was refused"; bad=1; }

# build STATUS OUTPUT WORDS...: tools/build.sh with a cmake that prints the words, a line each, and ends with the status
build() {
  local status=$1 want=$2 out
  shift 2
  printf '%s\n' "$@" >"$work/words"
  stand_in cmake "cat '$work/words'; exit $status"
  out=$(PATH=$work/bin:$PATH "$root/tools/build.sh" "$work/build")
  [ $? = "$status" ] || { echo "build: the status $status is lost"; bad=1; }
  [ "$out" = "$want" ] || { echo "build: printed '$out', wanted '$want'"; bad=1; }
}
build 0 "" '[0/2] Re-checking globbed directories...' 'ninja: no work to do.'
build 0 "" '[0/1] Re-running CMake...' '-- Configuring done' "make[1]: Entering directory 'x'" \
  '[100%] Built target weft'
build 0 $'[1/2] Building C object a.c.o\na.c:1:2: warning: -- x' '[1/2] Building C object a.c.o' \
  'a.c:1:2: warning: -- x'
build 1 $'a.c:1: error\nninja: build stopped: subcommand failed.' 'a.c:1: error' \
  'ninja: build stopped: subcommand failed.'
build 2 'make: *** No rule to make target' 'make: *** No rule to make target'
exit $bad
