#!/usr/bin/env bash
# Print the absolute path of an interpreter of the given minor version that can make virtual environments.
# usage: tools/find_python.sh 3.12
#
# Tries $PYTHON, python3 (which pyenv points at .python-version), then every pythonX.Y on the PATH. Several may answer
# to one name: a pyenv shim refuses versions that .python-version does not name unless PYENV_VERSION does, and Debian
# splits ensurepip from the interpreter, so each candidate has to prove itself.
set -euo pipefail

version=${1:?usage: $0 MAJOR.MINOR}
probe='import ensurepip, sys, venv
if "%d.%d" % sys.version_info[:2] != sys.argv[1]: raise SystemExit(1)
print(sys.executable)'

candidates=()
[[ -n ${PYTHON:-} ]] && candidates+=("$PYTHON")
while read -r path; do candidates+=("$path"); done < <(type -ap python3 "python$version" 2>/dev/null || true)

for candidate in "${candidates[@]}"; do
  for selected in "" "$version"; do
    if found=$(env ${selected:+PYENV_VERSION="$selected"} "$candidate" -c "$probe" "$version" 2>/dev/null); then
      printf '%s\n' "$found"
      exit 0
    fi
  done
done

echo "Python $version with venv and ensurepip is needed, and neither python3 nor python$version on the PATH is it;" \
  "install it (pyenv install $version, or apt-get install python$version-venv) or say make PYTHON=path/to/python$version." >&2
exit 2
