#!/bin/bash
# destructors.sh OBJECTS…: nothing of the library is destroyed when the process ends, or a thread before the program's
# own thread_local objects, since destructors of the program may use all of it: objects of these kinds would register
# their destructors with the C++ runtime. Such state is never destroyed (static auto& x = *new X) or a PerThread.
set -euo pipefail
# What does so by intent: the default group of reel::distributed, which tells the other ranks, and the profile of a whole
# process, which writes its file; the fiber of a thread's own stack, whose destructor does nothing; and std::cout of
# xtensor's and Gloo's headers.
allowed='/(distributed.*/process|tensor/profile|base/fibers|gloo_engine|linalg|nn/init)\.cpp\.o'
objects=()
for object in "$@"; do
  if [[ $object == *.o ]]; then objects+=("$object"); fi  # not a precompiled header
done
found=$(nm -AC "${objects[@]}" | grep -E ' U (__cxa_atexit|__cxa_thread_atexit)$' | grep -vE "$allowed" || true)
[[ ! $found ]] || {
  echo "destructors: these register destructors that run at the end of the process or of a thread:"$'\n'"$found" >&2
  exit 1
}
