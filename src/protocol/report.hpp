#pragma once

#include <cstdint>

#include "core/hd.hpp"

namespace moelane {

// What a body found wrong; turned into a sentence by the engine. Trivially copyable, for the GPU's error
// word.
enum class Fault : std::uint8_t {
  none,
  timed_out,
  aborted,
  peer_left,
  other_way,        // the peer's step takes another way, or its call is of another kind
  other_placement,  // the peer works with another expert table
  other_tokens,     // ranks of one DP group bring different numbers of tokens, or more than max_tokens
  other_tensor,     // the peer's symmetric tensor lies elsewhere or has other strides
  bad_id,           // an expert id outside [-1, experts): token, k, value
  bad_tokens,       // GPU: a number of tokens outside [0, limit]: value
  overflow,         // this rank's output is too small
  dropped,          // a peer's output was too small for some of this rank's rows
};

enum class Phase : std::uint8_t { none, counts, dispatch, rows, combine, answers };

struct Report {
  Fault fault = Fault::none;
  Phase phase = Phase::none;
  std::int32_t peer = -1;
  std::uint64_t seen = 0, needed = 0;  // words
  std::int32_t token = 0, k = 0, expert = -1;
  std::int64_t value = 0, limit = 0;  // a bad id and experts; rows needed and capacity
  std::uint64_t bytes = 0;            // moved by this call

  // Whether the engine cannot go on.
  MOELANE_HD bool failed() const {
    return fault != Fault::none && fault != Fault::overflow && fault != Fault::dropped &&
           fault != Fault::bad_id && fault != Fault::bad_tokens;
  }
};

}  // namespace moelane
