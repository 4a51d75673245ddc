#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "core/hd.hpp"

// The contract between the protocol and what carries its bytes. A transport is a pair: a host owner that maps
// the heaps (world_impl.hpp), and the handle described here, trivially copyable, which the operations' bodies
// are compiled against. A handle belongs to one rank and one lane. Peers' memory is named by offset: every
// rank's heap has the same layout. docs/transports.md has the contract in full.
namespace moelane {

enum class SignalOp : std::uint8_t { set, add };

enum class Outcome : std::uint8_t {
  reached,
  timed_out,     // the bound passed
  aborted,       // abort() was called on this rank
  peer_left,     // the peer said farewell without sending the signal
  contradicted,  // the peer sent the signal of another way instead
};

// What a wait ended with: the word as it was seen last.
struct Seen {
  std::uint64_t word;
  Outcome outcome;
};

// A wait for one word in the own heap. `watch` (0: none) is a word that, once it has come to `needed_watch`
// while the awaited word has not, shows that the peer took another way.
struct Wait {
  std::uint64_t word;    // offset
  std::uint64_t needed;  // reached(word, needed, mask)
  std::uint64_t mask;
  int peer;  // who will raise it
  std::uint64_t watch = 0;
};

template <class T>
concept Transport = requires(const T& t, int peer, std::uint64_t offset, const void* source,
                             std::size_t bytes, std::uint64_t value, SignalOp op, const Wait& wait) {
  // Whether a signal covers all earlier puts to the same peer (strong), or only the put it came with (weak).
  { T::kStrong } -> std::convertible_to<bool>;
  { t.rank() } -> std::same_as<int>;
  { t.ranks() } -> std::same_as<int>;
  // The base of a peer's heap when it can be addressed by plain loads and stores, else null; always given for
  // the own rank. Symmetric: a addresses b exactly when b addresses a. Plain stores are covered by every
  // later signal to that peer, on weak transports too.
  { t.peer_pointer(peer) } -> std::same_as<std::byte*>;
  // Copies `bytes` from local memory to `offset` in the peer's heap, then sets or adds to the word at
  // `value`'s offset. Never waits for the peer. Local memory may change when the call returns.
  {t.put_signal(peer, offset, source, bytes, offset, value, op)};
  {t.signal(peer, offset, value, op)};
  // Sets the same word at every rank, the own included.
  {t.signal_many(offset, value)};
  // Blocks until the word is reached or the wait ends otherwise; bytes covered by the signal may then be
  // read.
  { t.wait_until(wait) } -> std::same_as<Seen>;
};

}  // namespace moelane
