#include "lib/cpu/onednn.h"

#include "lib/base/lazy.h"
#include "lib/base/per_thread.h"
#include "lib/cpu/kernels.h"

namespace reel::cpu {
dnnl::engine& onednn_engine() {
  static constinit Lazy<dnnl::engine> engine;
  return engine.get([] { return dnnl::engine(dnnl::engine::kind::cpu, 0); });
}

dnnl::stream& onednn_stream() {
  struct Stream {
    dnnl::stream stream{onednn_engine()};
  };
  static constinit thread_local PerThread<OnednnState<Stream>> mine;
  return mine->state->stream;
}

void limit_onednn(Isa isa) {
  using dnnl::cpu_isa;
  // Fails, which is harmless, if the program has used oneDNN before: its limit is fixed then.
  dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(isa == Isa::kBaseline ? cpu_isa::sse41
                                                   : isa == Isa::kAvx2   ? cpu_isa::avx2
                                                                         : cpu_isa::all));
}

}  // namespace reel::cpu
