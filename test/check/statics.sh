#!/bin/bash
# statics.sh OBJECTS…: static objects of the library can be used until the very end of the process and in a forked child.
# - None is destroyed when the process ends, or a thread before the program's own thread_local objects, since destructors
#   of the program may use all of the library: objects of these kinds would register their destructors with the C++
#   runtime. Such state is a Lazy or a PerThread.
# - None is made under the lock of a function-local static, which stays locked in a child that is forked meanwhile. Such
#   state is a Lazy, or `constinit`.
set -euo pipefail
# These register a destructor by intent: the profile of a whole process, which writes its file; the fiber of a thread's
# own stack, whose destructor does nothing; and std::cout of xtensor's and Gloo's headers.
allowed='/(distributed.*/process|tensor/profile|base/fibers|gloo_engine|linalg|nn/init)\.cpp\.o'
# In a process that has used a GPU no child can use one: what belongs to GPUs may have such locks.
guarded=' guard variable for reel::' gpu='for reel::(cuda|distributed::Nccl)::'
objects=()
for object in "$@"; do
  if [[ $object == *.o ]]; then objects+=("$object"); fi  # not a precompiled header
done
found=$(nm -AC "${objects[@]}")
destroyed=$(grep -E ' U (__cxa_atexit|__cxa_thread_atexit)$' <<<"$found" | grep -vE "$allowed" || true)
[[ ! $destroyed ]] || {
  echo "statics: these register destructors that run at the end of the process or of a thread:"$'\n'"$destroyed" >&2
}
locked=$(grep -F "$guarded" <<<"$found" | grep -vE "$gpu" || true)
[[ ! $locked ]] || {
  echo "statics: these function-local statics have a lock, use lib/base/lazy.h:"$'\n'"$locked" >&2
}
[[ ! $destroyed && ! $locked ]]
