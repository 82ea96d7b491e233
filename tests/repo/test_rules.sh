#!/usr/bin/env bash
# Rules of the tree that a compiler does not check. Each is shown to find a planted fault before it judges the tree.
#   calls      src outside cli does not end the process, print, or assert
#   locale     src outside cli turns real numbers into text, and back, through base/format only
#   _exit      allowed in the two places that are child processes or injected faults
#   math       no flag or attribute that lets the compiler assume away NaN or reorder sums; -Wvla stays on
#   function   at most 80 lines outside src/kern (from "{" to "}" in the first column)
#   file       at most 800 lines
#   line       at most 120 columns
#   marker     no marks of unfinished work
#   readme     every room with sources has a README.md
#   root       no file at the top but those that are known (where git can tell): outputs get there by accident
# labels: small noasan
set -u
root=${WEFT_SRC:-$(cd "$(dirname "$0")/../.." && pwd)}

# Comments and strings are removed before calls are looked for; lines keep their numbers.
sources() {
  (cd "$1" && find src include tests examples bench -name '*.[ch]' -o -name '*.inl' -o -name '*.inc' 2>/dev/null |
    sort | xargs -r awk '
    BEGIN { calls = "exit|abort|_Exit|quick_exit|printf|vprintf|puts|putchar|perror|assert|system" }
    function strip(s,   out, c, i, quote) {
      out = ""; quote = ""
      for (i = 1; i <= length(s); i++) {
        c = substr(s, i, 1)
        if (comment) { if (substr(s, i, 2) == "*/") { comment = 0; i++ } }
        else if (quote) { if (c == "\\") i++; else if (c == quote) quote = "" }
        else if (substr(s, i, 2) == "/*") { comment = 1; i++ }
        else if (substr(s, i, 2) == "//") break
        else if (c == "\"" || c == "\047") quote = c
        else out = out c
      }
      return out
    }
    function finish() { if (lines > 800) print last ": " lines " lines, more than 800" }
    FNR == 1 { finish(); last = FILENAME; comment = 0; open = 0 }
    { lines = FNR }
    $0 == "{" { open = FNR }
    /^}/ {
      if (open && FILENAME ~ /^src\// && FILENAME !~ /^src\/kern\// && FNR - open + 1 > 80)
        print FILENAME ":" open ": a function of " FNR - open + 1 " lines, more than 80"
      open = 0
    }
    FILENAME ~ /^src\// && FILENAME !~ /^src\/cli\// {
      if (comment || /[(]|std/) {
        code = strip($0)
        if (match(code, "(^|[^A-Za-z0-9_.>*])(" calls ")[ \t]*[(]"))
          print FILENAME ":" FNR ": calls " substr(code, RSTART, RLENGTH) ")"
        if (match(code, /(^|[^A-Za-z0-9_])(stdout|stderr)([^A-Za-z0-9_]|$)/))
          print FILENAME ":" FNR ": uses " substr(code, RSTART, RLENGTH)
        if (FILENAME !~ /^src\/(base\/fault|comm\/local_spawn)\.c$/ && match(code, /(^|[^A-Za-z0-9_])_exit[ \t]*\(/))
          print FILENAME ":" FNR ": calls _exit()"
        if (FILENAME != "src/base/format.c" &&
            (match(code, /(^|[^A-Za-z0-9_])(strto[dfl]d?|atof)[ \t]*\(/) && code !~ /strto(l|ll)[ \t]*\(/ ||
             match($0, /(^|[^A-Za-z0-9_])v?s?n?f?s?(printf|scanf)[ \t]*\(.*%[-+ #0-9.*]*l?[aefgAEFG]/)))
          print FILENAME ":" FNR ": calls " substr($0, RSTART, 20) ", which follows the locale; use base/format.h"
      } else if (index($0, "/*")) strip($0)
    }
    END { finish() }')
}

markers() {
  local words='\<(TO''DO|FIX''ME|XX''X|HA''CK)\>' \
    places='src include tests examples bench docs tools CMakeLists.txt Makefile'
  # Prose may speak of such marks; with a colon or a name in brackets it is one.
  (cd "$1" && {
    grep -rnE "$words" --include='*.[ch]' --include='*.in[lc]' --include='*.sh' --include='CMakeLists.txt' \
      --include=Makefile $places
    grep -rnE "${words}[:(]" --include='*.md' $places
  } 2>/dev/null | sed 's/$/   (a mark of unfinished work)/')
}

math() {
  local flags='-O''fast|-f''fast-math|-funsafe''-math|-ffinite''-math|-fassociative''-math|-freciprocal''-math'
  flags+='|-fno-signed''-zeros|optimize *\( *"[^"]*fast'
  (cd "$1" && grep -rnE -e "$flags" --include='*.[ch]' --include='*.inl' --include='*.sh' --include='*.cmake' \
    --include='CMakeLists.txt' --include=Makefile src tests tools CMakeLists.txt Makefile 2>/dev/null |
    sed 's/$/   (arithmetic without NaN or order)/')
  grep -q -e '-Wvla' "$1/CMakeLists.txt" || echo "CMakeLists.txt: -Wvla is gone"
  (cd "$1" && grep -rn -e '-Wno''-vla' CMakeLists.txt src tests 2>/dev/null)
}

readmes() {
  local room
  for room in "$1"/src/*/; do
    if [ -n "$(find "$room" -name '*.[ch]' -print -quit)" ] && [ ! -s "$room/README.md" ]; then
      echo "src/$(basename "$room"): no README.md"
    fi
  done
}

# In characters, not bytes.
wide() {
  (cd "$1" && grep -rn '' --include='*.[ch]' --include='*.in[lc]' --include='*.sh' src include tests examples bench \
    tools 2>/dev/null | LC_ALL=C.UTF-8 sed -nE 's/^([^:]*:[0-9]*):.{121,}$/\1: more than 120 columns/p')
}

strays() {
  local known='README(\.zh)?\.md|CONTRIBUTING\.md|LICENSE|Makefile|CMakeLists\.txt|\.gitignore|\.clang-format'
  (cd "$1" && git ls-files 2>/dev/null | grep -vE "/|^($known)$" | sed 's/$/: does not belong at the top of the tree/')
}

check() { strays "$1"; wide "$1"; sources "$1"; markers "$1"; math "$1"; readmes "$1"; }

# plant FILE EXPECTED: the file's content comes from stdin.
plant() {
  local tree found
  tree=$(mktemp -d) || exit 1
  mkdir -p "$tree/src/base" "$tree/$(dirname "$1")"
  echo 'add_compile_options(-Wvla)' >"$tree/CMakeLists.txt"
  echo base >"$tree/src/base/README.md"
  cat >>"$tree/$1"
  git -C "$tree" init -q 2>/dev/null && git -C "$tree" add .
  found=$(check "$tree")
  rm -rf "$tree"
  if [ -z "$2" ]; then
    [ -z "$found" ] || { echo "self-check: $1: a clean file is refused: $found"; bad=1; }
  else
    case "$found" in
    *"$2"*) ;;
    *) echo "self-check: $1: expected '$2', got '$found'"; bad=1 ;;
    esac
  fi
}

bad=0
if command -v git >/dev/null; then plant stdout 'stdout: does not belong at the top' <<<'x'; fi
body() { echo "void f(void)"; echo "{"; for ((i = 2; i < $1; i++)); do echo "    g();"; done; echo "}"; }
plant src/base/a.c 'src/base/a.c:2: calls  printf()' <<<$'void f(void)\n{ printf("x"); }'
plant src/base/a.c 'src/base/a.c:1: calls exit()' <<<'exit(1);'
plant src/base/a.inl 'calls (abort ()' <<<'x(abort ());'
plant src/base/a.c 'uses (stderr,' <<<'fprintf(stderr, "x");'
plant src/base/a.c 'calls  perror()' <<<'/* why */ perror("x");'
plant src/base/a.c 'src/base/a.c:1: calls _exit()' <<<'_exit(5);'
plant src/base/a.c 'calls assert()' <<<'assert(x);'
plant src/base/a.c '' <<<$'/* printf("x");\n exit(1); */\nsnprintf(b, n, "exit(1)");'\
$' t->abort(t); void (*abort)(void);\nfprintf(file, "puts(x)");'
plant src/base/a.c 'which follows the locale' <<<'x = strtod(s, &end);'
plant src/base/a.c 'which follows the locale' <<<'snprintf(b, n, "at %5.2f s", x);'
plant src/base/a.c 'which follows the locale' <<<'sscanf(b, "%lf", &x);'
plant src/base/a.c '' <<<$'x = weft_strtod(s, &end); y = strtoll(s, &end, 10);\n'\
$'weft_format(b, n, "%g", x); snprintf(b, n, "%d of %s", 1, s);'
plant src/cli/README.md '' <<<'cli'
plant src/base/a.c 'a function of 81 lines' < <(body 81)
plant src/base/a.c '' < <(body 80)
plant src/base/a.c 'src/base/a.c: 801 lines' < <(for ((i = 0; i < 801; i++)); do echo; done)
plant src/base/a.c 'src/base/a.c:2: more than 120 columns' < <(echo; printf 'x%.0s' {1..121}; echo)
plant src/base/a.c '' < <(printf '—%.0s' {1..120}; echo)
plant src/base/a.c 'a mark of unfinished work' <<<"/* TO""DO: later */"
plant tools/x.sh 'a mark of unfinished work' <<<"# FIX""ME"
plant docs/x.md 'a mark of unfinished work' <<<"TO""DO(me) write this"
plant docs/x.md '' <<<"No TO""DO in this tree."
plant tools/x.sh 'without NaN or order' <<<"cc -f""fast-math"
plant CMakeLists.txt 'without NaN or order' <<<"add_compile_options(-O""fast)"
plant CMakeLists.txt 'CMakeLists.txt:2:' <<<"add_compile_options(-Wno""-vla)"
plant src/model/model.c 'src/model: no README.md' <<<'int x;'

violations=$(check "$root")
[ -z "$violations" ] || { echo "$violations"; bad=1; }
exit $bad
