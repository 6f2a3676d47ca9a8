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
FRT_TEST_PACKAGES=(clang clang-format clang-tidy libclang-rt-dev binutils)

# Boost 1.81 or newer: Debian 12 has it under a versioned name beside its default.
boost_package() {
  if apt-cache show libboost1.81-dev >/dev/null 2>&1; then
    echo libboost1.81-dev
  else
    echo libboost-dev
  fi
}

# Installs those of the named packages that are missing, and Boost. Asks for root only then.
install_packages() {
  local missing=() package boost
  dpkg-query -W -f='${Status}' libboost1.81-dev 2>/dev/null | grep -q 'ok installed' ||
    boost=later
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && [ -z "${boost:-}" ] && return
  command -v apt-get >/dev/null ||
    die "these packages are missing and this is no Debian or Ubuntu: ${missing[*]} ${boost:+libboost-dev (1.81 or newer)}; install their equivalents, then run this again"
  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these packages are missing: ${missing[*]} ${boost:+libboost-dev (1.81 or newer)}; run this as root, or install them first"
    root=(sudo)
  fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  [ -z "${boost:-}" ] || missing+=("$(boost_package)")
  say "installing ${#missing[@]} packages: ${missing[*]}"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

# configure_and_build <preset> [cmake options...] [-- targets...]
configure_and_build() {
  local preset=$1 options=() targets=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
  [ $# -gt 0 ] && shift
  for target in "$@"; do targets+=(--target "$target"); done
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  say "configuring build/$preset"
  cmake --preset "$preset" "${options[@]}" >"build/.configure-$preset.log" 2>&1 ||
    { cat "build/.configure-$preset.log" >&2; die "configuring build/$preset failed"; }
  say "building build/$preset"
  cmake --build "build/$preset" "${targets[@]}"
}
