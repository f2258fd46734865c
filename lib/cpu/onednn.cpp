#include "lib/cpu/onednn.h"

#include <dlfcn.h>

#include "lib/cpu/kernels.h"

namespace reel::cpu {
namespace {

// These two calls of OpenMP act on the calling thread only. They are looked up in whichever runtime oneDNN has loaded
// (GNU's in Debian, LLVM's or Intel's elsewhere), since linking with another would set the threads of that one. A
// oneDNN without OpenMP has none, and nothing to be set.
struct OpenMp {
  int (*max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  bool found() const { return max_threads && set_num_threads; }
};
const OpenMp& openmp() {
  static const OpenMp functions;
  return functions;
}

}  // namespace

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
  // Fails, which is harmless, if the program has used oneDNN before: its limit is fixed then.
  dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(isa == Isa::kBaseline ? cpu_isa::sse41
                                                   : isa == Isa::kAvx2   ? cpu_isa::avx2
                                                                         : cpu_isa::avx512_core));
}

SingleThreadOnednn::SingleThreadOnednn() : before_(openmp().found() ? openmp().max_threads() : 0) {
  if (before_ > 1) openmp().set_num_threads(1);
}
SingleThreadOnednn::~SingleThreadOnednn() {
  if (before_ > 1) openmp().set_num_threads(before_);
}

}  // namespace reel::cpu
