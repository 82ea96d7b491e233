#!/usr/bin/env bash
# What libweft shows and keeps: the shared library exports exactly what include/weft declares WEFT_API, all of it with
# the prefix weft_; and no object holds mutable state that two thread ranks would share.
# labels: small
set -u
root=${WEFT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)} build=${WEFT_BUILD:-$root/build}
bad=0
complain() { echo "$1"; bad=1; }

# Names after WEFT_API up to the first "(" or ";", declarations over several lines included.
declared() {
  cat "$1"/*.h | sed 's|/\*.*\*/||' | tr '\n' ' ' | grep -oE 'WEFT_API [^;(]*[(;]' |
    sed -E 's/ *[(;]$//; s/.*[^A-Za-z0-9_]([A-Za-z0-9_]+)$/\1/' | grep -v '^__attribute__$' | sort -u
}

exported() { nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ && $3 !~ /^(_|\.)/ { print $3 }' | sort -u; }

compare() { # compare FOLDER LIBRARY
  local names
  names=$(exported "$2")
  echo "$names" | grep -v '^weft_' | sed 's/$/: exported without the prefix weft_/'
  diff <(declared "$1") <(echo "$names") |
    sed -n 's/^< \(.*\)/\1: declared WEFT_API, not exported/p; s/^> \(.*\)/\1: exported, not declared WEFT_API/p'
}

# Objects in .data or .bss. The facts about the processor (behind pthread_once) are the one exception.
mutable() {
  nm -A -f sysv "$1" 2>/dev/null |
    awk -F'|' '$4 ~ /OBJECT/ && $7 ~ /^\.(data|bss)/ && $7 !~ /^\.data\.rel\.ro/ { gsub(/ /, "", $1); print $1 }' |
    grep -vE 'isa\.c\.o:(found|once)$'
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/include"
cat >"$work/include/x.h" <<'C'
#define WEFT_API __attribute__((visibility("default")))
WEFT_API int weft_one(int a);
WEFT_API const char *
weft_two(void);
WEFT_API int weft_gone(void);
C
cat >"$work/x.c" <<'C'
static int counter, *pointer = &counter;
static const char *const table[] = {"a", "b"};
int weft_one(int a) { return a + counter++ + *pointer++; }
const char *weft_two(void) { return table[counter & 1]; }
int weft_extra(void) { return 0; }
int stray(void) { return 0; }
C
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[^=]*=//p' "$build/CMakeCache.txt")
"$compiler" -shared -fPIC -o "$work/x.so" "$work/x.c" && "$compiler" -c -fPIC -o "$work/x.o" "$work/x.c" || exit 1
found=$(compare "$work/include" "$work/x.so")
for part in 'weft_gone: declared WEFT_API, not exported' 'weft_extra: exported, not declared WEFT_API' \
  'stray: exported without the prefix'; do
  case "$found" in *"$part"*) ;; *) complain "self-check: '$part' was not found in: $found" ;; esac
done
case "$found" in *weft_one* | *weft_two*) complain "self-check: declared names are refused: $found" ;; esac
state=$(mutable "$work/x.o")
for part in counter pointer; do
  case "$state" in *"$part"*) ;; *) complain "self-check: the mutable static '$part' was not found in: $state" ;; esac
done
case "$state" in *table*) complain "self-check: a constant table is refused" ;; esac

# Sanitizers add symbols and state of their own.
if grep -q '^WEFT_SANITIZE:STRING=..*' "$build/CMakeCache.txt"; then exit $bad; fi
violations=$(compare "$root/include/weft" "$build/libweft.so")
[ -z "$violations" ] || complain "$violations"
state=$(mutable "$build/libweft.a")
[ -z "$state" ] || complain "mutable state: $state"
exit $bad
