# shellcheck shell=bash
# setup.sh - shared by tools/quickstart and tools/test: say what happens, install packages, build.
# Sourced; expects to run from the repository's root.

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The nvcc the build would take (cmake/FrtCuda.cmake looks in the same places); fails if there is none
# of CUDA 13.
find_nvcc() {
  local nvcc
  for nvcc in "$PWD/build/cuda-toolkit/bin/nvcc" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
    "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    [ -n "$nvcc" ] && [ -x "$nvcc" ] || continue
    case $(nvcc_release "$nvcc") in 13.*) echo "$nvcc"; return 0 ;; esac
  done
  return 1
}
nvcc_release() { "$1" --version 2>/dev/null | sed -n 's/.*release [0-9.]*, V\([0-9.]*\).*/\1/p'; }

# An NVIDIA GPU that this machine's driver knows.
has_nvidia_device() {
  [ -e /dev/nvidia0 ] || [ -e /dev/nvgpu/igpu0 ] || nvidia-smi -L >/dev/null 2>&1
}

# Why the CUDA backend cannot use this machine's GPUs; nothing where it can, or nobody knows.
cuda_obstacle() {
  local driver capability newest=0
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  if [[ $driver =~ ^([0-9]+)\. ]] && [ "${BASH_REMATCH[1]}" -lt 580 ]; then
    echo "the NVIDIA driver is $driver, CUDA 13 needs 580 or newer"
    return
  fi
  while read -r capability; do
    capability=${capability//./}
    [[ $capability =~ ^[0-9]+$ ]] && [ "$capability" -gt $newest ] && newest=$capability
  done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
  [ $newest -eq 0 ] || [ $newest -ge 89 ] ||
    echo "the GPU's compute capability is ${newest%?}.${newest: -1}, the CUDA backend needs 8.9 or newer"
}

# The architectures to build for: that of this machine's GPUs, or all. A GPU without an architecture
# of its own here gets the newest that is not newer, whose PTX its driver translates.
cuda_architectures() {
  local known=(89 90a 110a 120a 121a) found=() capability best architecture
  while read -r capability; do
    capability=${capability//./}
    [[ $capability =~ ^[0-9]+$ ]] || continue
    best=
    for architecture in "${known[@]}"; do
      [ "${architecture%a}" -le "$capability" ] && best=$architecture
    done
    [ -z "$best" ] || [[ " ${found[*]} " == *" $best "* ]] || found+=("$best")
  done < <(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true)
  [ ${#found[@]} -gt 0 ] || found=("${known[@]}")
  local IFS=';'
  echo "${found[*]}"
}

# The packages of DESIGN 9 on Debian and Ubuntu.
FRT_PACKAGES=(
  g++ cmake ninja-build pkg-config python3
  libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev libssl-dev libxxhash-dev libsqlite3-dev libdnnl-dev ocl-icd-opencl-dev libhwy-dev libedit-dev
  doctest-dev libbenchmark-dev
)
# What only tools/test needs.
FRT_TEST_PACKAGES=(file doxygen clang clang-format clang-tidy libclang-rt-dev binutils python3-jsonschema)

# Boost 1.81 or newer: Debian 12 has it under a versioned name beside its default.
boost_package() {
  if apt-cache show libboost1.81-dev >/dev/null 2>&1; then
    echo libboost1.81-dev
  else
    echo libboost-dev
  fi
}
has_boost() {
  local version
  version=$(sed -n 's/^#define BOOST_VERSION \([0-9]*\)$/\1/p' /usr/include/boost/version.hpp 2>/dev/null || true)
  [ "${version:-0}" -ge 108100 ]
}

# Installs those of the named packages that are missing, and Boost. Asks for root only then.
install_packages() {
  local missing=() package root=() boost=
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  has_boost || boost="libboost-dev (1.81 or newer)"
  [ ${#missing[@]} -gt 0 ] || [ -n "$boost" ] || return 0
  command -v apt-get >/dev/null ||
    die "these packages are missing and this is no Debian or Ubuntu: ${missing[*]} $boost; install their equivalents, then run this again with --no-install"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these packages are missing: ${missing[*]} $boost; run this as root, or install them first"
    root=(sudo)
  fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  [ -z "$boost" ] || missing+=("$(boost_package)")
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# Assembles an nvcc where there is none; with 1 it may install what that needs.
provide_nvcc() {
  find_nvcc >/dev/null && return
  [ "$1" -eq 0 ] || python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  tools/setup-cuda
}

# Builds what structured output stands on, once; all else works without. With 1 it may install what
# that needs.
provide_xgrammar() {
  tools/setup-xgrammar --check 2>/dev/null && return
  [ "$1" -eq 0 ] || python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  [ "$1" -eq 0 ] || command -v patch >/dev/null || install_packages patch
  (tools/setup-xgrammar) || say "no structured output: tools/setup-xgrammar failed"
}

# configure_and_build <preset> [cmake options...] [-- targets...]
configure_and_build() {
  local preset=$1 options=() targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  for target in "$@"; do targets+=(--target "$target"); done
  if command -v ccache >/dev/null; then
    # Clones in different folders share what they compiled, unless the user has set it up otherwise.
    [ -n "$(ccache --get-config base_dir)" ] || export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
    # What ccache asks for to cache what includes precompiled headers.
    [ -n "$(ccache --get-config sloppiness)" ] || export CCACHE_SLOPPINESS=pch_defines,time_macros
    options+=(-DCMAKE_{C,CXX,CUDA}_COMPILER_LAUNCHER=ccache)
  fi
  say "configuring build/$preset"
  local log=build/.configure-$preset.log status=0
  cmake --preset "$preset" "${options[@]}" >"$log" 2>&1 || status=$?
  # A folder of another compiler, for which CMake forgets what else the preset sets.
  if grep -q 'require your cache to be deleted' "$log"; then
    status=0
    cmake --fresh --preset "$preset" "${options[@]}" >"$log" 2>&1 || status=$?
  fi
  [ $status -eq 0 ] || { cat "$log" >&2; die "configuring build/$preset failed"; }
  if [ -t 1 ]; then
    say "building build/$preset"
    cmake --build "build/$preset" "${targets[@]}"
    return
  fi
  # A thousand lines of progress would push what failed out of a log that keeps only its end.
  log=build/.build-$preset.log
  say "building build/$preset, its output goes to $log"
  cmake --build "build/$preset" "${targets[@]}" >"$log" 2>&1 ||
    { sed '/^\[[0-9]*\/[0-9]*\] [BL]/d' "$log" | tail -n 80 >&2; die "building build/$preset failed; the whole output is in $log"; }
}
