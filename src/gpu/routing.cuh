#pragma once

#include <cstdint>

#include "gpu/rows.cuh"
#include "protocol/routing.hpp"

// The routing that a rank brings, as kernels read it: ids outside [-1, experts) count as -1, a number of
// tokens outside [0, max] as 0.
namespace moelane::gpu {

struct Tokens {
  std::int32_t count, wrong;  // `wrong`: what was given, where it counts as 0
  bool right;
};
__device__ inline Tokens tokens_in(const Input& in) {
  if (in.tokens_at == nullptr) return {in.tokens, 0, true};
  const std::int32_t given = *in.tokens_at;
  const bool right = given >= 0 && given <= in.tokens;
  return {right ? given : 0, given, right};
}

__device__ inline std::int64_t raw_id(const Input& in, std::int32_t token, std::int32_t k) {
  const std::byte* from = in.ids.at(token, k);
  return in.wide_ids ? *reinterpret_cast<const std::int64_t*>(from)
                     : *reinterpret_cast<const std::int32_t*>(from);
}
__device__ inline std::int32_t id_of(const Input& in, std::int32_t experts, std::int32_t token,
                                     std::int32_t k) {
  const std::int64_t id = raw_id(in, token, k);
  return id >= 0 && id < experts ? static_cast<std::int32_t>(id) : -1;
}

// The entries (token, k) that this block moves, of a part of the tokens: whole tokens, or, where there are
// fewer tokens than blocks, some of a token's k.
__device__ inline Range entries_of(const Share& part, std::int32_t topk) {
  const bool whole = part.count >= static_cast<std::int32_t>(gridDim.x);
  const Range own = slice_of(whole ? part.count : part.count * topk, gridDim.x, blockIdx.x);
  const std::int32_t unit = whole ? topk : 1, first = part.begin * topk;
  return {first + own.begin * unit, first + own.end * unit};
}
// The next batch of them: up to the end of a token that makes it full.
__device__ inline Range batch_of(Range entries, std::int32_t begin, const TopkDivider& divider) {
  const std::int32_t end = (divider.quotient(begin) + divider.quotient(kBatch)) * divider.topk;
  return {begin, end < entries.end ? end : entries.end};
}

// One entry of the routing, read and then kept for combine; every entry of the group's tokens is kept by one
// thread of the rank.
struct Entry {
  std::int64_t raw;
  float weight;
};
__device__ inline Entry entry_of(const Input& in, std::int32_t token, std::int32_t k) {
  return {raw_id(in, token, k), *reinterpret_cast<const float*>(in.weights.at(token, k))};
}
// Returns the id, and whether it was `bad`.
template <DeviceTransport T>
__device__ std::int32_t keep(const CallContext<T>& context, std::int32_t entry, const Entry& read,
                             bool& bad) {
  const Lane<T>& lane = context.lane;
  const std::int64_t raw = read.raw;
  const bool good = raw >= -1 && raw < lane.shape().experts;
  if (!good) {
    atomicMin(&context.shared_state->first_bad, static_cast<std::uint32_t>(entry));
    bad = true;
  }
  const std::int32_t id = good ? static_cast<std::int32_t>(raw) : -1;
  lane.template own<std::int32_t>(lane.at.own_ids())[entry] = id;
  lane.template own<float>(lane.at.own_weights())[entry] = read.weight;
  return id;
}

// By one thread of the last block of a dispatch: what all blocks have found wrong with the input.
template <DeviceTransport T>
__device__ __noinline__ void report_bad_input(const Block<T>& block, const Input& in) {
  const Tokens tokens = tokens_in(in);
  Report report;
  if (!tokens.right) {
    report.fault = Fault::bad_tokens;
    report.value = tokens.wrong;
    report.limit = in.tokens;
    block.post(report);
  }
  SharedState& shared_state = *block.context.shared_state;
  if (shared_state.first_bad == kNone) return;
  const std::int32_t topk = block.context.lane.shape().topk;
  report.fault = Fault::bad_id;
  report.token = static_cast<std::int32_t>(shared_state.first_bad) / topk;
  report.k = static_cast<std::int32_t>(shared_state.first_bad) % topk;
  report.value = raw_id(in, report.token, report.k);
  report.limit = block.context.lane.shape().experts;
  shared_state.first_bad = kNone;
  block.post(report);
}

}  // namespace moelane::gpu
