#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.hpp"

namespace moelane {

// The way to peers whose heap no address reaches: puts travel as messages and are carried out at the peer.
// One for each set of heaps.
class Far {
 public:
  virtual ~Far() = default;
  // As in the transport's contract, without a wait and strong: whatever went to this peer before is there
  // when the signal is. A put whose signal is added may be held back until a signal that is set, or the next
  // progress(). Throws Error(transport) when the network refuses.
  virtual void put_signal(int peer, std::uint64_t offset, const void* source, std::size_t bytes,
                          std::uint64_t word, std::uint64_t value, SignalOp op) = 0;
  // Takes what has come and moves on what is under way; never blocks. Those who wait call it.
  virtual void progress() = 0;
};

}  // namespace moelane
