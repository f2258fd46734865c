#pragma once

#pragma GCC visibility push(default)
namespace reel {

/// How many threads one large op, such as a convolution, may use. Initially 1: several threads or processes, each with
/// its own examples, use the cores better than one op does. Less than 1 is an Error. For all threads of the program,
/// from their next op on; small ops never use more than one. The program's own OpenMP settings are left alone.
void set_num_threads(int threads);
int num_threads();  ///< What is set.

}  // namespace reel
#pragma GCC visibility pop
