#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package as its users have it: a wheel by pip, installed in a virtual environment of its own. No
# network is used: setuptools and wheel have to be there.
set -u
: "${top_srcdir:=.}" "${top_builddir:=.}" "${PYTHON:=python3}"

# The distribution's Python has them as packages, where configure's may lack them.
found=
for python in "$PYTHON" /usr/bin/python3; do
    if "$python" -c 'import setuptools, wheel, venv, pip' 2>/dev/null; then
        found=$python
        break
    fi
done
PYTHON=$found
if [ -z "$PYTHON" ]; then
    echo "SKIP: Python lacks one of setuptools, wheel, venv and pip"
    exit 77
fi
srcdir=$(cd "$top_srcdir" && pwd) || exit 99
STEPAF_LIBRARY=$(cd "$top_builddir" && pwd)/.libs || exit 99
export STEPAF_LIBRARY
unset PYTHONPATH
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT

# Of a copy: the tree may be read-only, and setuptools builds in it.
mkdir "$work/tree" && cp -R "$srcdir/python" "$srcdir/include" "$srcdir/VERSION" "$work/tree/" &&
    chmod -R u+w "$work/tree" && cd "$work" || exit 99
"$PYTHON" -m pip wheel -q --no-deps --no-build-isolation --no-index -w dist tree/python || exit 1
ls dist
case $(ls dist) in
stepaf-*-cp39-abi3-linux_*.whl | stepaf-*t-linux_*.whl) ;;
*)
    echo "not one wheel for all Pythons"
    exit 1
    ;;
esac

# A source distribution has all that is needed to build it elsewhere. Optimized is what was built first.
(cd tree/python && "$PYTHON" setup.py -q sdist -d "$work/sdist") || exit 1
mkdir elsewhere && tar -xzf sdist/*.tar.gz -C elsewhere || exit 1
printf '#!/bin/sh\nexec %s "$@" -O0\n' "${CC:-cc}" >quick && chmod +x quick || exit 99
(cd elsewhere/stepaf-* && CC=$work/quick "$PYTHON" -m pip wheel -q --no-deps --no-build-isolation --no-index \
    -w "$work/again" .) || exit 1
cmp -s "$(ls dist)" "$(ls again)" || [ "$(ls dist)" = "$(ls again)" ] || exit 1

# A copy of the directory alone, as pip before 21.3 makes, says what is wrong.
cp -R "$srcdir/python" alone || exit 1
if (cd alone && "$PYTHON" setup.py --version) >said 2>&1 || ! grep -q "pip>=21.3" said; then
    cat said
    echo "without the headers"
    exit 1
fi

"$PYTHON" -m venv --without-pip venv || exit 1
site=$(venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
"$PYTHON" -m pip install -q --no-deps --no-index --target "$site" dist/*.whl || exit 1
venv/bin/python -m stepaf || exit 1
STEPAF_LOCAL_SIZE=2 STEPAF_LOCAL_JOB=wheel-$$ STEPAF_SPLIT=attn=1,ffn=1
export STEPAF_LOCAL_SIZE STEPAF_LOCAL_JOB STEPAF_SPLIT
STEPAF_LOCAL_RANK=1 venv/bin/python "$srcdir/examples/python/push_pull.py" &
STEPAF_LOCAL_RANK=0 venv/bin/python "$srcdir/examples/python/push_pull.py" >said || exit 1
wait $! || exit 1
[ "$(cat said)" = 42.0 ] || { cat said; exit 1; }
