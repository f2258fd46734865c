#include "lib/device/kernels/update.h"

#include <atomic>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/parts.h"
#include "lib/cpu/simd/batch.h"
#include "lib/functors/update.h"

// Optimizer steps, gradient scaling and norms, over each parameter in one pass.
namespace reel::cpu::REEL_ISA {
namespace {

template <class T>
using States = std::array<T*, functors::kMaxStates>;

template <class T, class F>
void update_flat(const F& f, int64_t n, T* p, const T* g, const States<T>& states) {
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
    Batch<T> parameter = get(p), s = get(states[0]), t = get(states[1]), u = get(states[2]);
    f(parameter, get(g), s, t, u);
    set(p, parameter);
    set(states[0], s);
    set(states[1], t);
    set(states[2], u);
  }
}

/// Elements from `begin` on.
template <class T>
States<T> states_from(States<T> states, int64_t begin) {
  for (T*& state : states)
    if (state) state += begin;
  return states;
}

template <class T, class F>
void update_rows(const F& f, const View& p, const View& g, const View* const* states, const View* ids) {
  States<T> all;
  for (int i = 0; i < functors::kMaxStates; ++i) all[i] = states[i] ? states[i]->as<T>() : nullptr;
  if (!ids)
    return for_each_range(p.numel, 1, [&](int64_t begin, int64_t end) {
      update_flat(f, end - begin, p.as<T>() + begin, g.as<const T>() + begin, states_from(all, begin));
    });
  if (ids->numel == 0) return;
  const int64_t n = g.numel / ids->numel;
  constexpr int64_t kLine = 64 / sizeof(T), kAhead = 4;
  for_each_range(ids->numel, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = ids->as<const int64_t>()[i] * n;
      if (i + kAhead < end)  // rows lie anywhere: they are asked for before their turn
        for (int64_t j = 0; j < n; j += kLine)
          __builtin_prefetch(p.as<T>() + ids->as<const int64_t>()[i + kAhead] * n + j, 1);
      update_flat(f, n, p.as<T>() + at, g.as<const T>() + i * n, states_from(all, at));
    }
  });
}

template <size_t I>
void update(const void* functor, const View& p, const View& g, const View* const* states, const View* ids) {
  if (is_half(p.dtype)) return update_halves(update<I>, functor, p, g, states, ids);
  const auto& f = *static_cast<const std::tuple_element_t<I, functors::UpdateList>*>(functor);
  p.dtype == kFloat32 ? update_rows<float>(f, p, g, states, ids) : update_rows<double>(f, p, g, states, ids);
}

template <size_t I>
void multi_tensor_update(const void* functor, std::span<const Updated> parameters) {
  const auto& f = *static_cast<const std::tuple_element_t<I, functors::UpdateList>*>(functor);
  const auto run = [&]<class T>(T) {
    for_each_range(numel_of(parameters), 1, [&](int64_t first, int64_t last) {
      for_each_in_range(parameters, first, last, [&](const Updated& u, int64_t begin, int64_t end) {
        States<T> states;
        for (int i = 0; i < functors::kMaxStates; ++i) states[i] = static_cast<T*>(u.states[i]);
        update_flat(f, end - begin, static_cast<T*>(u.p) + begin, static_cast<const T*>(u.g) + begin,
                    states_from(states, begin));
      });
    });
  };
  if (parameters.empty()) return;
  if (!is_half(parameters[0].dtype)) return parameters[0].dtype == kFloat32 ? run(float()) : run(double());
  for (const Updated& u : parameters)  // one after the other, so that few are copied at a time
    multi_tensor_update<I>(functor, Widened().of_update({&u, 1}));
}

void multi_tensor_scale(double factor, const View* norm, std::span<const Updated> gradients, bool* found) {
  if (!gradients.empty() && is_half(gradients[0].dtype))
    return multi_tensor_scale(factor, norm, Widened().in_out(gradients), found);
  if (norm) factor = functors::clip_factor(factor, norm->dtype == kFloat32 ? *norm->as<float>() : *norm->as<double>());
  if (factor == 1 && !found) return;
  const auto run = [&]<class T>(T) {
    for_each_range(numel_of(gradients), 1, [&](int64_t first, int64_t last) {
      Batch<T> zeros(T(0));  // sums of 0 * x: NaN where an x is infinite or NaN
      for_each_in_range(gradients, first, last, [&](const Updated& u, int64_t begin, int64_t end) {
        T* g = static_cast<T*>(u.p);
        for (int64_t i = begin; i < end; i += kWidth<T>) {
          const int64_t rest = end - i;
          const Batch<T> x = load_up_to(g + i, rest);
          zeros = zeros + x * Batch<T>(T(0));
          store_up_to(g + i, x * Batch<T>(T(factor)), rest);
        }
      });
      T lanes[kWidth<T>];
      store(lanes, zeros);
      for (const T lane : lanes)
        if (found && lane != lane) std::atomic_ref(*found).store(true, std::memory_order_relaxed);
    });
  };
  if (!gradients.empty()) gradients[0].dtype == kFloat32 ? run(float()) : run(double());
}

template <size_t... I>
void install(KernelTable& table, std::index_sequence<I...>) {
  static constexpr KernelTable::Update rows[] = {update<I>...};
  table.update = rows;
  static constexpr KernelTable::MultiTensorUpdate rows_of_many[] = {multi_tensor_update<I>...};
  table.multi_tensor_update = rows_of_many;
}

}  // namespace

void install_update(KernelTable& table) {
  install(table, std::make_index_sequence<std::tuple_size_v<functors::UpdateList>>());
  table.multi_tensor_scale = multi_tensor_scale;
}

}  // namespace reel::cpu::REEL_ISA
