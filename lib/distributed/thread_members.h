// This file has jobs whose ranks are threads of one process, by which tests run collectives without processes.
#pragma once
#include <memory>
#include <vector>

#include "reel/distributed/group.h"

namespace reel::distributed {

/// The backend of ranks that are threads, which move data by memcpy. It is not for users, so that Backend lacks it.
inline constexpr Backend kThreadBackend{static_cast<int>(Backend::kNccl) + 1};

/// Returns the members of a job whose ranks are threads of this process, by rank.
std::vector<std::shared_ptr<Member>> thread_members(int world_size);
/// Returns whether the ranks of the member's job are threads.
bool is_of_threads(const Member& member);
/// Gives the calling thread a default group of its own, which it leaves by destroy_process_group() or when it ends.
/// Each rank calls it with its member.
void init_process_group(std::shared_ptr<Member> member, const ProcessGroupOptions& options = {});

}  // namespace reel::distributed
