#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reel/distributed/group.h"

#pragma GCC visibility push(default)
/// Collectives of the default group that wait. See ProcessGroup for each.
namespace reel::distributed {

void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::kSum);         ///< In place.
void broadcast(const Tensor& tensor, int root);                              ///< Root's to the others.
Tensor all_gather(const Tensor& in);                                         ///< [world, …].
std::vector<Tensor> all_gather_v(const Tensor& in);                          ///< First sizes may differ.
Tensor reduce_scatter(const Tensor& in, ReduceOp op = ReduceOp::kSum);       ///< in [world, …].
void all_to_all(TensorList outs, TensorList ins);                            ///< outs[r] = ins[rank] of r.
std::vector<Tensor> gather(const Tensor& in, int root);                      ///< Empty but at the root.
void scatter(const Tensor& out, TensorList ins, int root);                   ///< ins are the root's only.
void send(const Tensor& tensor, int to, int tag = 0);                        ///< To a recv().
void recv(const Tensor& tensor, int from, int tag = 0);                      ///< From a send().
int recv_any(const Tensor& tensor, std::span<const int> from, int tag = 0);  ///< Who has sent.
void barrier();                                                              ///< Until all have come.
void monitored_barrier(Milliseconds timeout);                                ///< Names those that have not.
std::string broadcast_object(std::string_view bytes, int root);              ///< Root's.
std::vector<std::string> all_gather_object(std::string_view bytes);          ///< By rank.

/// The mean of a tensor over all ranks, without history: what a schedule, L-BFGS or early stopping must decide by, so
/// that all ranks decide alike. The tensor itself, detached, in a world of 1.
Tensor mean(const Tensor& tensor);

}  // namespace reel::distributed
#pragma GCC visibility pop
