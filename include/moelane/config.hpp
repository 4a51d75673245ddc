#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "moelane/dtype.hpp"

namespace moelane {

// How dispatched rows lie in the output; see Engine::dispatch_recv.
enum class Layout : std::uint8_t { padded, contiguous, ranked };

// How rows travel. put: one row per token and destination rank into the receiver's slot, placed by the
// receiver; answers are pushed back. direct: rows are written to their final place and expert rows are read
// where they lie; it needs whole calls, symmetric tensors and ranks that address each other's heap.
// automatic: whole calls go direct where the transport can, split calls always put.
enum class Way : std::uint8_t { automatic, put, direct };

std::string_view name_of(Layout layout);
std::string_view name_of(Way way);

// What all ranks of an engine agree on; the ranks compare it when the engine is made and name the first
// difference.
struct Config {
  int experts = 0;     // physical experts in the world, 1 to 65536
  int topk = 0;        // expert ids per token, 1 to 32
  int hidden = 0;      // elements of a row, at least 1
  int max_tokens = 0;  // the most tokens a DP group brings to a step, 1 to 4194303
  int tp_size = 1;     // ranks of a DP group: consecutive ranks that hold the same tokens; divides the ranks
  int in_flight = 2;   // lanes, 1 to 64

  DType dtype = DType::bf16;          // of dispatched rows: fp8_e4m3, bf16, fp16 or fp32
  DType combine_dtype = DType::bf16;  // of expert rows: bf16, fp16 or fp32
  DType out_dtype = DType::bf16;      // of the combined output: bf16, fp16 or fp32
  int scale_columns = 0;              // scales per token, 0 for none
  int scale_bytes = 4;                // bytes of one scale: 1, 2, 4 or 8; opaque

  Layout layout = Layout::padded;
  int alignment = 1;  // contiguous layout: every expert starts at a multiple of this many rows

  Way way = Way::automatic;
  // Sum at the expert's rank first and send bf16 partial sums: fewer bytes, other rounding. Takes the put
  // way.
  bool partial_sums = false;
  // Send everything by puts, also to peers whose heap could be addressed: the network's path, on one machine.
  bool force_puts = false;
  // Some heaps cannot be addressed (ranks on several machines): rows for them are staged, and whole calls
  // take the put way. An engine sets it by itself where its world is like that.
  bool network = false;

  int num_sms = 0;        // GPU ranks: multiprocessors that a call may use, 0 for all; each rank's own
  double timeout = 30.0;  // seconds a call may wait for its peers; infinity for engines that idle
  std::size_t symmetric_bytes = 0;  // per lane, for Engine::allocate

  // Throws Error(argument) with the first field that is not allowed in a world of `ranks`.
  void validate(int ranks) const;

  // Bytes that the library itself holds in each rank's heap, exactly, for a world of `ranks`, without the
  // caller's symmetric tensors: lanes * (G * max_tokens * (row + routing) + max_tokens * K * answer) and the
  // signals.
  std::size_t heap_bytes(int ranks) const;
  // Bytes that are mapped for each rank: heap_bytes and the symmetric tensors of every lane, in whole pages.
  std::size_t mapped_bytes(int ranks) const;

  std::size_t row_bytes() const { return static_cast<std::size_t>(hidden) * size_of(dtype); }
  std::size_t scale_row_bytes() const {
    return static_cast<std::size_t>(scale_columns) * static_cast<std::size_t>(scale_bytes);
  }
  std::size_t answer_bytes() const {
    return static_cast<std::size_t>(hidden) * size_of(partial_sums ? DType::bf16 : combine_dtype);
  }

  // One "key=value" line for each field that ranks must share.
  std::string canonical() const;
};

}  // namespace moelane
