#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "moelane/engine.hpp"
#include "reference/expected_dispatch.hpp"
#include "support/fleet.hpp"
#include "support/gpu_ranks.hpp"
#include "support/scene.hpp"

namespace moelane::test {

// One lane of one rank: makes fresh input for a step, calls the engine, and compares every byte of every
// tensor with what the reference says. Throws Wrong. The calls of a step: begin, then dispatch or its halves,
// then combine or its halves. Of a GPU rank, each call is waited for, on a stream of the player's own.
class Player {
 public:
  Player(Engine& engine, const Scene& scene, int lane);

  // For graphs: after this rank has made one, which waits for the card and so for kernels that wait.
  std::function<void()> meet;

  void begin(int step);
  void dispatch_send();
  void dispatch_recv();
  void dispatch();
  void combine_send();
  void combine_recv();
  void combine();
  void play(int step);  // all of a step, by the calls that the scene says

  // For calls that a test makes itself, on stream(): what comes before a combine, and what comes after a
  // call.
  void prepare_combine();
  void wait() const;  // for the calls on the stream
  void finish();      // waits, and throws what they found wrong
  void check_dispatch();
  void check_combine();
  // After begin(), for GPU ranks, which read these in the kernel: puts `id` in place of every -1 (and returns
  // the first of them as token * topk + k, or -1); puts another number of tokens in place of the right one.
  std::int64_t spoil_ids(std::int64_t id);
  void spoil_tokens(std::int32_t tokens);
  Stream stream() const { return site_.stream; }
  const Site& site() const { return site_; }

  // What the next call will be given; valid after begin().
  const DispatchInput& input() const { return in_; }
  const DispatchOutput& output() const { return out_; }
  const TensorView& rows() const { return rows_.view(); }
  const TensorView& combined() const { return combined_.view(); }
  const tools::ExpectedDispatch& expected() const { return expected_; }
  const std::vector<tools::GroupStep>& groups() const { return groups_; }
  bool drops() const;                    // whether this rank's group loses rows in this step
  std::vector<std::byte> bytes() const;  // of all outputs of the step, when it is over

 private:
  int group() const { return engine_.rank() / scene_.config.tp_size; }
  const tools::GroupStep& mine() const { return groups_[static_cast<std::size_t>(group())]; }
  void nap();
  void make_input();
  void make_outputs();
  void poison_outputs();
  void check_input();
  void check_by_reference();
  void answer();  // the experts
  void make_combined();
  void renew(Guarded& tensor, const Spec& spec);
  void expect(bool capacity_error, const char* name, const std::function<void()>& call);

  Engine& engine_;
  const Scene& scene_;
  int lane_, step_ = -1;
  std::shared_ptr<const gpu::OwnStream> own_stream_;
  Site site_;
  std::map<std::string, gpu::Graph> graphs_;  // by call
  tools::Random random_;
  std::vector<std::int32_t> table_, experts_;
  std::vector<tools::GroupStep> groups_;
  tools::ExpectedDispatch expected_;
  std::vector<bool> dropped_;

  Guarded x_in_, scales_in_, ids_in_, weights_in_, num_tokens_;
  Guarded x_, scales_, counts_, offsets_, row_count_, ids_, weights_, rows_, combined_;
  DispatchInput in_;
  DispatchOutput out_;
};

// One rank's part in a scene: an engine, a player for each lane, `steps` steps on the lanes in turn.
void perform(World world, const Scene& scene, int steps);

// The whole scene; what went wrong, empty if nothing.
std::string run(const Scene& scene, int steps, Home home = Home::threads);

}  // namespace moelane::test
