#!/usr/bin/env bash
# Clone HEAD into an empty folder and run there what CI runs, then the demo, as on a machine that has never seen the project.
# usage: tools/clean_clone.sh [KEEP_FOLDER]
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [[ $# -gt 0 ]]; then
  folder=$1
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi

git clone --quiet --no-hardlinks "$checkout" "$folder/clone"
cd "$folder/clone"
# The caller's virtual environment and import path must not lend it anything; the user's caches may be full or absent.
unset VIRTUAL_ENV PYTHONPATH PYTHONHOME
export XDG_CACHE_HOME=$folder/cache

time CI=true bash .ci/run </dev/null
time CI=true make demo </dev/null

if [[ -n $(git status --porcelain) ]]; then
  echo "the run left files behind that git does not ignore:" >&2
  git status --short >&2
  exit 1
fi
