#include "bench/buffer_sets.hpp"

#include <unistd.h>

#include <algorithm>

namespace moelane::tools {

int sets_beyond_cache(double bytes, bool on_cards) {
  const long host = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const double cache = on_cards ? 64 << 20 : host > 0 ? static_cast<double>(host) : 32 << 20;
  return static_cast<int>(std::min(2 * cache / std::max(bytes, 1.0), on_cards ? 127.0 : 15.0)) + 1;
}

int sets_for(const Options& o, int least) {
  const Config& c = o.config;
  const double rows = static_cast<double>(o.ranks / c.tp_size) * c.max_tokens * c.topk;
  const double step = rows * static_cast<double>(c.row_bytes() + c.scale_row_bytes()) +
                      rows * static_cast<double>(c.hidden) * static_cast<double>(size_of(c.combine_dtype));
  return std::max(sets_beyond_cache(step, o.on_cards()), least);
}

}  // namespace moelane::tools
