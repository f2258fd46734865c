#include "lib/cpu/kernels.h"
#include "lib/cpu/simd/batch.h"

namespace reel::cpu::REEL_ISA {
namespace {

template <class T, class F>
void update_flat(const F& f, int64_t n, T* p, const T* g, T* s, T* t) {
  for (int64_t i = 0; i < n; i += kWidth<T>) {
    const int64_t rest = n - i;
    const bool whole = rest >= kWidth<T>;
    const auto get = [&](const T* data) {
      return !data ? Batch<T>(T(0)) : whole ? load(data + i) : load_part(data + i, rest);
    };
    const auto set = [&](T* data, const Batch<T>& value) {
      if (!data) return;
      whole ? store(data + i, value) : store_part(data + i, value, rest);
    };
    Batch<T> parameter = get(p), first = get(s), second = get(t);
    f(parameter, get(g), first, second);
    set(p, parameter);
    set(s, first);
    set(t, second);
  }
}

template <class T, class F>
void update_rows(const F& f, const View& p, const View& g, const View* s, const View* t, const View* ids) {
  T* const first = s ? s->as<T>() : nullptr;
  T* const second = t ? t->as<T>() : nullptr;
  if (!ids) return update_flat(f, p.numel, p.as<T>(), g.as<const T>(), first, second);
  if (ids->numel == 0) return;
  const int64_t n = g.numel / ids->numel;
  for (int64_t i = 0; i < ids->numel; ++i) {
    const int64_t at = ids->as<const int64_t>()[i] * n;
    update_flat(f, n, p.as<T>() + at, g.as<const T>() + i * n, first ? first + at : nullptr,
                second ? second + at : nullptr);
  }
}

template <size_t I>
void update(const void* functor, const View& p, const View& g, const View* s, const View* t, const View* ids) {
  const auto& f = *static_cast<const std::tuple_element_t<I, scalar::UpdateList>*>(functor);
  p.dtype == kFloat32 ? update_rows<float>(f, p, g, s, t, ids) : update_rows<double>(f, p, g, s, t, ids);
}

template <size_t... I>
void install(Backend& table, std::index_sequence<I...>) {
  table.update = {update<I>...};
}

}  // namespace

void install_update(Backend& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<scalar::UpdateList>>());
}

}  // namespace reel::cpu::REEL_ISA
