#!/bin/bash
# subproject.sh SOURCE: a project that has reel as a part of it keeps its own build type, options, flags, targets and
# packages, and gets an optimized library all the same. Only configures.
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "subproject: $*" >&2
  exit 1
}
cat >"$work/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.20)
project(user CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(REEL_CUDA OFF)
add_subdirectory($source reel)
add_executable(user main.cpp)
target_link_libraries(user PRIVATE reel::reel)
foreach(target check docs package tests bench samples)
  add_custom_target(\${target})
endforeach()
option(BUILD_SHARED_LIBS "the user's own" ON)
if(NOT BUILD_SHARED_LIBS)
  message(FATAL_ERROR "reel has set BUILD_SHARED_LIBS")
endif()
EOF
echo 'int main() {}' >"$work/main.cpp"
for type in '' Debug Release; do
  build=$work/build-$type
  cmake -S "$work" -B "$build" -G Ninja -DREEL_CUDA=OFF ${type:+-DCMAKE_BUILD_TYPE=$type} >"$work/log" 2>&1 ||
    fail "$(cat "$work/log")"
  [[ $(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt") == "$type" ]] || fail "the build type is changed"
  grep -F -- "-c $work/main.cpp" "$build/compile_commands.json" >"$work/user"
  if [[ $type != Release ]] && grep -E -- '-O[1-3]|NDEBUG' "$work/user"; then fail "the user's own flags are changed"; fi
  for file in device/allocator simd/gemm distributed/socket image/png; do
    grep -E "\"command\".*$file\.cpp" "$build/compile_commands.json" >"$work/own" || continue
    grep -q -- ' -O3 .*' "$work/own" && ! grep -vq -- NDEBUG "$work/own" || fail "$file is not optimized with '$type'"
  done
done
