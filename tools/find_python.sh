#!/bin/sh
# Print the Python that .venv is made with: the argument where one is given (`make PYTHON=...`), else the
# first candidate that really runs. Being on the PATH is not enough: version managers leave shims there
# that fail, and some systems ship a Python without venv.
set -u
works() {
  "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1
}
if [ -n "${1:-}" ]; then
  if works "$1"; then echo "$1"; exit 0; fi
  echo "PYTHON=$1 does not run, is not Python 3.11, 3.12 or 3.13, or lacks the venv module." >&2
  exit 1
fi
for candidate in python3.13 python3.12 python3.11 python3 python; do
  if works "$candidate"; then echo "$candidate"; exit 0; fi
done
echo "No Python 3.11, 3.12 or 3.13 with the venv module on the PATH." >&2
echo "Install one (on Debian: python3 and python3-venv), or name one: make PYTHON=/path/to/python3" >&2
exit 1
