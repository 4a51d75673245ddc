#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/sum_body.hpp"

// The loop of copies, written once over a vector type V (see row_body.hpp for V and for the pragma in force).
namespace moelane::cpu {

template <typename V, bool streamed>
struct Copy {
  static constexpr std::size_t kChunk =
      256;  // to each destination in turn; measured with eight: longer is slower

  // Ordinary stores up to the first line that belongs to the destination alone.
  static std::size_t head(const void* dst) { return streamed ? to_boundary<V>(dst) : 0; }

  [[gnu::always_inline]] static inline void put(char* to, const typename V::Line& line) {
    streamed ? V::stream(to, line) : V::store(to, line);
  }

  static void chunk(char* to, const char* from) {
    typename V::Line lines[kChunk / 64];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kChunk / 64; ++i) lines[i] = V::load_line(from + 64 * i);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kChunk / 64; ++i) put(to + 64 * i, lines[i]);
  }

  static void run(void* const* dst, int n, const void* src, std::size_t bytes) {
    const auto* from = static_cast<const char*>(src);
    if (bytes < kChunk) {
      for (int i = 0; i < n; ++i) __builtin_memcpy(dst[i], from, bytes);
      return;
    }
    for (int i = 0; i < n; ++i) {
      if (head(dst[i]) != 0) __builtin_memcpy(dst[i], from, head(dst[i]));
    }
    // Each destination has its own boundaries, so each takes the source from its own offset on; the first to
    // read a piece brings it into the L1 cache for all.
    const std::size_t chunks = (bytes - (streamed ? 63 : 0)) / kChunk;  // what is there after any head
    for (std::size_t done = 0; done < chunks * kChunk; done += kChunk) {
      for (int i = 0; i < n; ++i) {
        const std::size_t offset = head(dst[i]) + done;
        chunk(static_cast<char*>(dst[i]) + offset, from + offset);
      }
    }
    for (int i = 0; i < n; ++i) {
      char* to = static_cast<char*>(dst[i]);
      std::size_t offset = head(to) + chunks * kChunk;
      for (; offset + 64 <= bytes; offset += 64) put(to + offset, V::load_line(from + offset));
      if (offset < bytes) __builtin_memcpy(to + offset, from + offset, bytes - offset);
    }
  }
};

}  // namespace moelane::cpu
