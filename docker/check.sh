#!/usr/bin/env bash
# Builds docker/Dockerfile and checks the image, as root on Debian, without a Docker engine:
#
#     docker/check.sh [options of `buildah bud`, such as --build-arg TORCH_INDEX=]...
#
# The base image is made with debootstrap under the name that the Dockerfile asks for. It is kept for the next run;
# everything else is removed at the end. pip's settings on this machine hold in the build too.
#
# Environment:
#   RECOQUEST_CHECK_CACHE   folder for the base image and the work (default: ~/.cache/recoquest-docker-check)
#   RECOQUEST_CHECK_KEEP    1 leaves what was built in the folder, to be looked at
#   DEBIAN_MIRROR           where debootstrap fetches from (default: debootstrap's own)
#   STORAGE_DRIVER          buildah's storage driver (default: its own choice; vfs needs no overlay in the kernel)
set -euo pipefail

readonly REPOSITORY=$(cd "$(dirname "$0")/.." && pwd)
readonly DOCKERFILE=$REPOSITORY/docker/Dockerfile
readonly CACHE=${RECOQUEST_CHECK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/recoquest-docker-check}
readonly BASE_TAR=$CACHE/base-bookworm-python3.11.tar
readonly WORK=$CACHE/work
readonly IMAGE=localhost/recoquest:check
readonly BASE_SECONDS=900 BUILD_SECONDS=1800 READY_SECONDS=120 STOP_SECONDS=15
readonly STORAGE=(--root "$WORK/storage" --runroot "$WORK/run" ${STORAGE_DRIVER:+--storage-driver "$STORAGE_DRIVER"})
export TMPDIR=$WORK/tmp

server=""

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { printf 'check failed: %s\n' "$*" >&2; exit 1; }
buildah_() { buildah "${STORAGE[@]}" "$@"; }

require_tools() {
    local missing=() package
    [ "$(id -u)" = 0 ] || fail "run it as root; debootstrap and buildah's chroot isolation need it"
    for package in buildah debootstrap python3 procps; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || fail "install what is missing: apt-get install ${missing[*]}"
}

clean_up() {
    local status=$?
    trap - EXIT
    [ -z "$server" ] || kill -KILL $(descendants "$server") "$server" 2>/dev/null || true
    if [ "${RECOQUEST_CHECK_KEEP:-}" = 1 ]; then
        buildah_ rm --all >/dev/null
        say "kept: buildah ${STORAGE[*]} images"
    else
        remove_work
    fi
    exit "$status"
}

# buildah leaves its storage mounted on itself; nothing is removed through a mount.
remove_work() {
    local mount
    for mount in $(awk -v work="$WORK/" 'index($5, work) == 1 {print $5}' /proc/self/mountinfo | tac); do
        umount "$mount" || fail "$mount stays mounted, so $WORK was left as it is"
    done
    rm -rf --one-file-system "$WORK"
}

descendants() {
    local child
    for child in $(pgrep -P "$1"); do
        echo "$child"
        descendants "$child"
    done
}

# A stand-in for the official image: the same Debian and Python, `python` in /usr/local/bin.
make_base() {
    local root=$WORK/base
    [ ! -f "$BASE_TAR" ] || return 0
    say "making the base image with debootstrap"
    timeout "$BASE_SECONDS" debootstrap --variant=minbase \
        --include=ca-certificates,python3.11,python3.11-venv,python3-distutils \
        bookworm "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$CACHE/debootstrap.log" ||
        fail "debootstrap did not finish; $CACHE/debootstrap.log says why"
    ln -s ../../bin/python3.11 "$root/usr/local/bin/python"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man}/*
    tar --create --one-file-system --directory "$root" --file "$BASE_TAR.partial" .
    mv "$BASE_TAR.partial" "$BASE_TAR"
    rm -rf --one-file-system "$root"
}

import_base() {
    local name container
    name=$(sed -n 's/^ARG BASE=//p' "$DOCKERFILE")
    container=$(buildah_ from scratch)
    buildah_ add --quiet "$container" "$BASE_TAR" / >/dev/null
    buildah_ config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    buildah_ commit --quiet --rm "$container" "$name" >/dev/null
    say "base image: $name"
}

build_image() {
    local volume volumes=()
    python3 "$REPOSITORY/docker/pip_settings.py" "$WORK" >"$WORK/volumes"
    while read -r volume; do volumes+=(--volume "$volume"); done <"$WORK/volumes"
    say "building"
    timeout "$BUILD_SECONDS" buildah "${STORAGE[@]}" bud --isolation=chroot \
        --pull-never --format docker --file "$DOCKERFILE" --tag "$IMAGE" \
        --secret "id=pip.conf,src=$WORK/pip.conf" "${volumes[@]}" "$@" "$REPOSITORY" ||
        fail "the image did not build"
    say "built; its size: $(buildah_ images --format '{{.Size}}' "$IMAGE")"
}

# Runs a command in the container, with the data folder on a volume and no capability, as the compose file does.
in_container() {
    buildah_ run --isolation=chroot --cap-drop=all --volume "$WORK/home:/var/lib/recoquest:rw" \
        --env "RECOQUEST_PORT=$port" "$container" -- "$@"
}

# Prints the status of an answer and its body, or why there is none.
http_get() {
    python3 - "$1" <<'PYTHON'
import http.client
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1].split("/")[0]), timeout=10)
try:
    connection.request("GET", "/" + sys.argv[1].partition("/")[2])
    answer = connection.getresponse()
    print(answer.status, answer.read(300).decode("utf-8", "replace"))
except OSError as error:
    print("none", error)
PYTHON
}

check_contents() {
    local user version torch compilers
    user=$(in_container python -c 'import getpass, os; print(os.getuid(), os.getgid(), getpass.getuser())')
    [ "$user" = "10001 10001 recoquest" ] || fail "the image runs as '$user'"
    say "user: $user"
    version=$(in_container recoquest --version) || fail "recoquest --version does not run"
    say "version: $version"
    torch=$(in_container python -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda)') ||
        fail "torch cannot be imported"
    say "torch: $torch"
    in_container python -c 'import faiss' || fail "FAISS cannot be imported"
    compilers=$(in_container python -c 'import shutil; print(*filter(shutil.which, ["cc", "gcc", "c++"]))')
    [ -z "$compilers" ] || fail "the image carries compilers: $compilers"
}

# Starts what the image starts, on a loopback port.
start_server() {
    local command=() word
    while read -r word; do command+=("$word"); done < <(
        buildah_ inspect --type image "$IMAGE" | python3 -c '
import json, sys
config = json.load(sys.stdin)["Docker"]["config"]
print(*config["Entrypoint"], *config["Cmd"], sep="\n")'
    )
    say "starting: ${command[*]}"
    started=$(date +%s%N)
    in_container "${command[@]}" --host 127.0.0.1 --port "$port" >"$WORK/server.log" 2>&1 &
    server=$!
}

check_answers() {
    local answer
    until answer=$(http_get "$port/readyz") && [ "${answer%% *}" = 200 ]; do
        kill -0 "$server" 2>/dev/null || fail "the service ended: $(tail -n 20 "$WORK/server.log")"
        [ $(($(date +%s%N) - started)) -lt $((READY_SECONDS * 1000000000)) ] ||
            fail "not ready within $READY_SECONDS s: $answer; $(tail -n 20 "$WORK/server.log")"
        sleep 0.2
    done
    say "ready after $((($(date +%s%N) - started) / 1000000)) ms: $answer"
    answer=$(http_get "$port/livez")
    [ "${answer%% *}" = 200 ] || fail "/livez answered $answer"
    say "alive: $answer"
    in_container python /opt/recoquest/healthcheck.py || fail "the image's health check says no"
    ! RECOQUEST_PORT=1 python3 "$REPOSITORY/docker/healthcheck.py" 2>/dev/null ||
        fail "the health check says yes where nothing listens"
}

check_stop() {
    local process stopped uid program
    for process in $(descendants "$server"); do
        uid=$(awk '/^Uid:/ {print $2}' "/proc/$process/status")
        program=$(readlink "/proc/$process/exe")
        [[ $uid != 10001 || $program != *python* ]] || break
    done
    [[ $uid = 10001 && $program = *python* ]] || fail "no Python process runs as the image's user"
    stopped=$(date +%s%N)
    kill -TERM "$process"
    timeout "$STOP_SECONDS" tail --pid "$process" -f /dev/null || fail "SIGTERM did not stop it in $STOP_SECONDS s"
    # A service that ends by the signal itself, its work done, stopped as well as one that exits with 0.
    wait "$server" || grep -q 'subprocess exited on terminated' "$WORK/server.log" ||
        fail "it ended with an error: $(tail -n 20 "$WORK/server.log")"
    server=""
    say "stopped $((($(date +%s%N) - stopped) / 1000000)) ms after SIGTERM"
}

# The compose file mounts the root read-only: nothing may have been written outside the volume and /tmp.
check_writes() {
    local written
    written=$(find "$root" -xdev -user 10001 -not -path "$root/tmp*" -not -path "$root/var/lib/recoquest*" -print)
    [ -z "$written" ] || fail "the service wrote outside its volume and /tmp: $written"
}

require_tools
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock --nonblock 9 || fail "another check uses $CACHE"
trap clean_up EXIT
remove_work
mkdir -p "$TMPDIR" "$WORK/home"
chown 10001:10001 "$WORK/home"

make_base
import_base
build_image "$@"
container=$(buildah_ from --pull-never "$IMAGE")
root=$(buildah_ mount "$container")
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
check_contents
start_server
check_answers
check_stop
check_writes
buildah_ umount "$container" >/dev/null
say "the image is sound"
