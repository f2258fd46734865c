#pragma once
#include <string>
#include <string_view>

#include "lib/distributed/channel.h"
#include "reel/state_dict.h"

namespace reel::distributed {

/// A state dict as bytes, for a machine of the same byte order.
std::string pack_state(const StateDict& dict);
/// The other way, on the CPU. An Error for anything else.
StateDict unpack_state(std::string_view text);
/// Makes the text on all ranks the root's.
void broadcast_text(Channel& channel, std::string& text, int root, int rank, const char* name);

}  // namespace reel::distributed
