#!/bin/sh
# get_headers.sh FOLDER: unpacks ONNX Runtime's C and C++ headers, from Debian 13's libonnxruntime-dev, also on Debian 12
# (which has no such package). Installs nothing; the headers are then in FOLDER/usr/include/onnxruntime.
set -eu
mkdir -p "$1/lists/partial" "$1/cache/archives/partial"
cd "$1"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" > sources.list
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/lists" \
        -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root "$@"
}
apt update
apt download libonnxruntime-dev
dpkg-deb -x libonnxruntime-dev_*.deb .
