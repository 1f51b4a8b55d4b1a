#!/usr/bin/env bash
# Resolve NAME.in in a throw-away environment and write every package it brought, pinned, to NAME.txt.
# usage: tools/pin.sh 3.12 third_party/py/requirements-py312-jaxlib0.12
set -euo pipefail

version=${1:?usage: $0 MAJOR.MINOR NAME}
name=${2:?usage: $0 MAJOR.MINOR NAME}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

interpreter=$("$(dirname "$0")/find_python.sh" "$version")
"$interpreter" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$name.in"
{
  echo "# Python $version: all that $(basename "$name").in asks for and all that this needs in turn. Written by \`make pins\`."
  "$folder/venv/bin/python" -m pip freeze | LC_ALL=C sort -f -t= -k1,1
} >"$folder/pinned"
mv "$folder/pinned" "$name.txt"
