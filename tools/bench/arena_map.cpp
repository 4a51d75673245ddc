#include "bench/arena_map.hpp"

namespace moelane::tools {
namespace {

std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }
std::size_t line(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

ArenaMap::ArenaMap(const Options& o, int max_local_experts, int sets) : sets_(sets) {
  const Config& c = o.config;
  slot = line(c.row_bytes() + c.scale_row_bytes());
  answer_bytes = line(static_cast<std::size_t>(c.hidden) * size_of(c.combine_dtype));
  out_bytes = static_cast<std::size_t>(c.hidden) * size_of(c.out_dtype);
  ranks_ = u(o.ranks);
  share_ = u((c.max_tokens + c.tp_size - 1) / c.tp_size);
  topk_ = u(c.topk);
  expert_rows_ = o.padded() ? u(o.capacity) : 0;
  const std::size_t rows = u(o.capacity) * (o.padded() ? u(max_local_experts) : 1), tokens = u(c.max_tokens);
  std::size_t at = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t start = at;
    at += rounded(bytes);
    return start;
  };
  x_ = take(tokens * slot);
  placed_ = take(rows * slot);
  slots_ = take(ranks_ * share_ * slot);
  answers_ = take(rows * answer_bytes);
  returned_ = take(tokens * topk_ * answer_bytes);
  out_ = take(tokens * out_bytes);
  arrived_ = take(ranks_ * share_ * slot);
  came_back_ = take(tokens * topk_ * answer_bytes);
  part_ = at;
}

}  // namespace moelane::tools
