#include "lib/cpu/onednn.h"

#include "lib/cpu/kernels.h"
#include "reel/threads.h"

// Debian's oneDNN runs on OpenMP, of which these two calls are all that is needed: they act on the calling thread only.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
}

namespace reel::cpu {

dnnl::engine& onednn_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& onednn_stream() {
  thread_local dnnl::stream stream(onednn_engine());
  return stream;
}

void limit_onednn(Isa isa) {
  using dnnl::cpu_isa;
  // Refused, without harm, where the program has used oneDNN before.
  dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(isa == Isa::kBaseline ? cpu_isa::sse41
                                                   : isa == Isa::kAvx2   ? cpu_isa::avx2
                                                                         : cpu_isa::avx512_core));
}

OnednnThreads::OnednnThreads() : before_(omp_get_max_threads()) {
  if (before_ != num_threads()) omp_set_num_threads(num_threads());
}
OnednnThreads::~OnednnThreads() { omp_set_num_threads(before_); }

}  // namespace reel::cpu
