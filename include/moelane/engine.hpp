#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "moelane/config.hpp"
#include "moelane/error.hpp"
#include "moelane/placement.hpp"
#include "moelane/tensor.hpp"
#include "moelane/world.hpp"

namespace moelane {

// What a DP group brings; all ranks of the group give the same. Read until dispatch_send returns (whole
// calls: until dispatch returns). 0 <= m <= max_tokens.
struct DispatchInput {
  TensorView x;             // [m, hidden], dtype; any row stride
  TensorView scales;        // [m, scale_columns], scale_bytes each, any strides; not given without scales
  TensorView topk_ids;      // [m, topk], int32 or int64; physical expert ids, -1 for none
  TensorView topk_weights;  // [m, topk], fp32; read by combine, kept by the lane
  // If given: the number of tokens, read when the call runs; the tensors' m is then only the most it may be.
  const std::int32_t* num_tokens = nullptr;
};

// Where this rank's experts find their rows; L is the number of its experts, N and C are the caller's
// capacities. Rows are ordered by (group, token, k) within an expert, and by (group, token) in the ranked
// layout.
struct DispatchOutput {
  // padded: [L, C, hidden]; contiguous and ranked: [N, hidden]. Rows past the counts are left as they are.
  TensorView x;
  TensorView scales;          // as x, with scale_columns in place of hidden; any strides
  TensorView expert_counts;   // [L] int32: rows present for each expert (ranked: (row, k) pairs)
  TensorView expert_offsets;  // contiguous: [L + 1] int32: first row of each expert, and the end of the last,
                              // aligned
  TensorView row_count;       // ranked: [1] int32: rows present
  TensorView topk_ids;        // ranked: [N, topk] int32: local expert number, -1 for experts of other ranks
  TensorView topk_weights;    // ranked: [N, topk] fp32; 0 where the id is -1
};

// One thing that happened in a call, for a picture of a step in time.
struct TraceEvent {
  const char* name;  // "dispatch_send", "wait dispatch", ...
  int lane;
  std::uint64_t step;             // the lane's epoch
  int peer;                       // whom a wait was for, or -1
  std::int64_t begin_ns, end_ns;  // CLOCK_MONOTONIC; GPU ranks: the card's %globaltimer
  std::uint64_t bytes;            // moved by this rank in it
};

// One engine serves all layers of a model. Making it is collective over the world. Calls on one lane come
// from one thread at a time; different lanes may be driven by different threads. On every lane the order is
// dispatch, combine, dispatch, combine; every rank makes the same kind of call (whole or split).
//
// Errors: Error(argument) before anything is sent: the call may be made again. Error(capacity) after the call
// has done its duty towards the peers: the step is invalid, the lane goes on. Every other kind: the engine is
// finished.
//
// GPU ranks (World::peer): tensors lie on the rank's card; a call is put on its stream and returns at once,
// so that it can be captured in a CUDA graph and replayed. What a kernel finds wrong is thrown by the first
// call or status() after it is known, with the sentence a CPU rank would give; that call itself is then not
// made. Ids outside [-1, experts) count as -1 until then. Tensors must live until the stream has passed the
// call.
class Engine {
 public:
  Engine(World world, const Config& config);
  Engine(World world, const Config& config, Placement placement);
  ~Engine();  // tells the peers; never waits
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Split calls: a send never waits for a peer, and nothing is held between a send and its recv.
  void dispatch_send(int lane, const DispatchInput& in, Stream stream = {});
  void dispatch_recv(int lane, const DispatchOutput& out, Stream stream = {});
  // `expert_rows`: the answers, [L, C, hidden] or [N, hidden] of combine_dtype, each at the place where
  // dispatch put its token (ranked: one row per dispatched row, already weighted and summed over this rank's
  // experts).
  void combine_send(int lane, const TensorView& expert_rows, Stream stream = {});
  // `out`: [m, hidden] of out_dtype; out[t] = (accumulate ? out[t] : 0) + sum over k of weight * row.
  void combine_recv(int lane, const TensorView& out, bool accumulate = false, Stream stream = {});

  // Whole calls. On the direct way `out.x`, `out.scales` and `expert_rows` (and the ranked ids and weights)
  // must be symmetric tensors of this lane, the same ones on every rank.
  void dispatch(int lane, const DispatchInput& in, const DispatchOutput& out, Stream stream = {});
  void combine(int lane, const TensorView& expert_rows, const TensorView& out, bool accumulate = false,
               Stream stream = {});

  // A symmetric tensor of `lane`, dense, 256-byte aligned, owned by the engine until its end. Every rank
  // allocates the same shapes in the same order (experts: Placement::max_local_experts). Throws when
  // symmetric_bytes are used up.
  TensorView allocate(int lane, DType dtype, std::initializer_list<std::int64_t> shape);

  // Changes the expert table from the next dispatch on: on every rank between the same two steps, with no
  // step under way on any lane. Needs no communication. GPU ranks: the streams of earlier steps have been
  // synchronised.
  void set_placement(Placement placement);
  const Placement& placement() const;

  // Ends every wait of this engine, now and later, with Error(aborted); callable from any thread. Peers that
  // wait for this rank are told.
  void abort(const std::string& reason);

  // Throws what finished calls have found wrong and nobody was told yet; never waits. CPU ranks have nothing
  // left to say. GPU ranks: synchronise the stream before, to hear of all calls made on it; with a trace set,
  // this passes on the last finished call of each kind on each lane.
  void status();

  // True while calls are accepted; false after a time-out, a mismatch or abort().
  bool healthy() const;

  const Config& config() const;
  int rank() const;
  int ranks() const;
  Device device() const;             // where tensors and symmetric tensors lie
  bool direct() const;               // whether whole calls take the direct way
  std::size_t mapped_bytes() const;  // bytes that are mapped for this rank's heap
  // Times that a sleeping wait was ended by its clock although its signal had come: 0 unless wake-ups get
  // lost.
  std::uint64_t late_wakes() const;

  // Called after every phase and every wait that took time, from the calling thread; empty to stop. GPU
  // ranks: called by status(); calls made or captured from now on are stamped.
  void set_trace(std::function<void(const TraceEvent&)> sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moelane
