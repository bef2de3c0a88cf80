#!/usr/bin/env bash
# Builds docker/Dockerfile and checks the image, as root on Debian, without a Docker engine:
#
#     docker/check.sh [options of `buildah bud`, such as --build-arg TORCH_INDEX=]...
#
# The base image is made with debootstrap under the name that the Dockerfile asks for. It is kept for the next run;
# everything else is removed at the end. pip's settings on this machine hold in the build too. What the compose files
# start is then checked by docker/check.
#
# Environment:
#   RECOQUEST_CHECK_CACHE   folder for the base image and the work (default: ~/.cache/recoquest-docker-check)
#   RECOQUEST_CHECK_KEEP    1 leaves what was built in the folder, to be looked at
#   RECOQUEST_CHECK_READY   seconds that the service may take to be ready (default: 10); more on a busy machine
#   DEBIAN_MIRROR           where debootstrap fetches from (default: debootstrap's own)
#   STORAGE_DRIVER          buildah's storage driver (default: its own choice; vfs needs no overlay in the kernel)
set -euo pipefail

readonly REPOSITORY=$(cd "$(dirname "$0")/.." && pwd)
readonly DOCKERFILE=$REPOSITORY/docker/Dockerfile
readonly CACHE=${RECOQUEST_CHECK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/recoquest-docker-check}
readonly BASE_TAR=$CACHE/base-bookworm-python3.11.tar
readonly TOOLS=$CACHE/tools-podman-compose-1.6.0
readonly WORK=$CACHE/work
readonly IMAGE=localhost/recoquest:check
readonly BASE_SECONDS=900 BUILD_SECONDS=3600 LARGEST_MB=2500
readonly STORAGE=(--root "$WORK/storage" --runroot "$WORK/run" ${STORAGE_DRIVER:+--storage-driver "$STORAGE_DRIVER"})
export TMPDIR=$WORK/tmp

say() { printf '%s  %s\n' "$(date +%T)" "$*"; }
fail() { printf 'check failed: %s\n' "$*" >&2; exit 1; }
buildah_() { buildah "${STORAGE[@]}" "$@"; }

require_tools() {
    local missing=() package
    [ "$(id -u)" = 0 ] || fail "run it as root; debootstrap and buildah's chroot isolation need it"
    for package in bubblewrap buildah debootstrap procps python3-venv; do
        dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] || fail "install what is missing: apt-get install ${missing[*]}"
}

clean_up() {
    local status=$?
    trap - EXIT
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
    for mount in $(awk -v work="$WORK/" 'index($5, work) == 1 {print $5}' /proc/self/mountinfo | sort -r); do
        umount "$mount" || fail "$mount stays mounted, so $WORK was left as it is"
    done
    rm -rf --one-file-system "$WORK"
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

# What resolves the compose files; it runs without Podman.
install_tools() {
    [ ! -x "$TOOLS/bin/podman-compose" ] || return 0
    rm -rf "$TOOLS"
    python3 -m venv "$TOOLS"
    "$TOOLS/bin/pip" install --quiet podman-compose==1.6.0
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

build() {
    local volume volumes=()
    python3 "$REPOSITORY/docker/pip_settings.py" "$WORK" >"$WORK/volumes"
    while read -r volume; do volumes+=(--volume "$volume"); done <"$WORK/volumes"
    timeout "$BUILD_SECONDS" buildah "${STORAGE[@]}" bud --isolation=chroot \
        --pull-never --format docker --file "$DOCKERFILE" \
        --secret "id=pip.conf,src=$WORK/pip.conf" "${volumes[@]}" "$@" "$REPOSITORY"
}

# Of the image for GPUs, only what needs neither a GPU nor gigabytes: that both packages can be had, and that an index
# without CUDA is refused.
check_gpu_build() {
    local torch faiss
    torch=$(sed -n 's/^ARG TORCH_VERSION=//p' "$DOCKERFILE")
    faiss=$(python3 "$REPOSITORY/docker/requirements.py" "$REPOSITORY/pyproject.toml" gpu | grep '^faiss')
    # Three signs: a build for CPUs in a folder of this machine has a longer version.
    "$TOOLS/bin/pip" install --quiet --dry-run --no-deps --ignore-installed --target "$WORK/gpu" \
        --only-binary=:all: --python-version=3.11 --platform=manylinux{_2_28,2014}_x86_64 "torch===$torch" "$faiss" ||
        fail "there is no torch $torch with CUDA, or no $faiss"
    ! build --target build --build-arg DEVICE=gpu >"$WORK/gpu.log" 2>&1 ||
        fail "DEVICE=gpu took torch from an index without CUDA"
    grep -q 'DEVICE=gpu needs a torch with CUDA' "$WORK/gpu.log" || fail "DEVICE=gpu: $(tail -n 20 "$WORK/gpu.log")"
    say "for GPUs: torch $torch with CUDA and $faiss can be had"
}

in_container() { buildah_ run --isolation=chroot --cap-drop=all "$container" -- "$@"; }

check_contents() {
    local size user version torch stale compilers
    size=$(du --summarize --one-file-system --block-size=1MB "$root" | cut --fields=1)
    [ "$size" -lt "$LARGEST_MB" ] || fail "the image has $size MB, more than $LARGEST_MB"
    say "size: $size MB"
    user=$(in_container python -c 'import getpass, os; print(os.getuid(), os.getgid(), getpass.getuser())')
    [ "$user" = "10001 10001 recoquest" ] || fail "the image runs as '$user'"
    say "user: $user"
    version=$(in_container recoquest --version) || fail "recoquest --version does not run"
    say "version: $version"
    torch=$(in_container python -c 'import torch; print(torch.__version__, "CUDA", torch.version.cuda)') ||
        fail "torch cannot be imported"
    say "torch: $torch"
    in_container python -c 'import faiss' || fail "FAISS cannot be imported"
    stale=$(in_container python -v -c 'import transformers' 2>&1 | grep --count 'bytecode is stale' || true)
    [ "$stale" = 0 ] || fail "Python compiles $stale modules again at every start"
    compilers=$(in_container python -c 'import shutil; print(*filter(shutil.which, ["cc", "gcc", "c++"]))')
    [ -z "$compilers" ] || fail "the image carries compilers: $compilers"
}

check_services() {
    buildah_ inspect --type image "$IMAGE" |
        PYTHONPATH=$REPOSITORY/docker PYTHONDONTWRITEBYTECODE=1 "$TOOLS/bin/python" -m check "$root" "$WORK"
}

require_tools
mkdir -p "$CACHE"
exec 9>"$CACHE/lock"
flock --nonblock 9 || fail "another check uses $CACHE"
trap clean_up EXIT
remove_work
mkdir -p "$TMPDIR"

make_base
install_tools
import_base
check_gpu_build
say "building"
build --tag "$IMAGE" "$@" || fail "the image did not build"
container=$(buildah_ from --pull-never "$IMAGE")
root=$(buildah_ mount "$container")
check_contents
check_services
say "the image is sound"
