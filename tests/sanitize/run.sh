#!/bin/sh
# The kernels under AddressSanitizer and UndefinedBehaviorSanitizer: `run.sh PYTHON [DAMAGES]`.
#
# Builds them into a directory of its own, puts them into a copy of the package, and reads every file of
# tests/corrupt with DAMAGES accidents each. Only our kernels are instrumented; leaks are not looked for, because
# the interpreter keeps memory until the end. Then the kernels' own tests run on the same build.
set -eu

python=$(realpath -s "$1")
damages=${2:-1000}
here=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
work=${TILTYARD_SANITIZE_DIR:-$here/build/sanitize}
mkdir -p "$work"

"$python" -m pip install --quiet cmake ninja nanobind
bin=$(dirname "$python")
"$bin/cmake" -S "$here" -B "$work/cmake" -G Ninja -DTILTYARD_SANITIZE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DPython_EXECUTABLE="$python" -DCMAKE_MAKE_PROGRAM="$bin/ninja" >"$work/cmake.log"
"$bin/cmake" --build "$work/cmake" >>"$work/cmake.log" || { tail -30 "$work/cmake.log"; exit 1; }

rm -rf "$work/src"
mkdir -p "$work/src"
cp -r "$here/src/tiltyard" "$work/src/tiltyard"
rm -f "$work"/src/tiltyard/kernels/*.so
cp "$work"/cmake/*.so "$work/src/tiltyard/kernels/"

# the victims are written in an ordinary process: the official package does not run under the sanitizer
PYTHONPATH="$here/src:$here/tests" "$python" -m corrupt.victims "$work/victims"

# libstdc++ beside libasan: otherwise the sanitizer cannot intercept the exceptions that the kernels throw
preload="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export PYTHONPATH="$work/src:$here/tests" PYTHONMALLOC=malloc TILTYARD_PROBE_SECONDS=120

failed=0
for victim in "$work"/victims/*; do
    if LD_PRELOAD="$preload" "$python" -m corrupt.prober "$damages" "$victim" >"$work/probe.log" 2>&1; then
        tail -n 1 "$work/probe.log"
    else
        failed=1
        echo "FAILED: $victim"
        tail -n 60 "$work/probe.log"
    fi
done

if [ -d "$here/tests/kernels" ]; then
    LD_PRELOAD="$preload" "$python" -m pytest -q -p no:cacheprovider "$here/tests/kernels" || failed=1
fi
exit $failed
