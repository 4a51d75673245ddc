#pragma once

#include <optional>
#include <string>
#include <vector>

#include "moelane/engine.hpp"
#include "reference.hpp"
#include "support/fleet.hpp"
#include "support/scene.hpp"

namespace moelane::test {

// One lane of one rank: makes fresh input for a step, calls the engine, and compares every byte of every
// tensor with what the reference says. Throws Wrong. The calls of a step: begin, then dispatch or its halves,
// then combine or its halves.
class Player {
 public:
  Player(Engine& engine, const Scene& scene, int lane);

  void begin(int step);
  void dispatch_send();
  void dispatch_recv();
  void dispatch();
  void combine_send();
  void combine_recv();
  void combine();
  void play(int step);  // all of a step, by the calls that the scene says

  // What the next call will be given; valid after begin().
  const DispatchInput& input() const { return in_; }
  const DispatchOutput& output() const { return out_; }
  const TensorView& rows() const { return rows_.view(); }
  const TensorView& combined() const { return combined_.view(); }
  const tools::ExpectedDispatch& expected() const { return expected_; }
  const std::vector<tools::GroupStep>& groups() const { return groups_; }
  bool drops() const;  // whether this rank's group loses rows in this step

 private:
  int group() const { return engine_.rank() / scene_.config.tp_size; }
  const tools::GroupStep& mine() const { return groups_[static_cast<std::size_t>(group())]; }
  void nap();
  void make_input();
  void make_outputs();
  void poison_outputs();
  void check_input();
  void check_dispatch();
  void check_by_reference();
  void answer();  // the experts
  void begin_combine();
  void check_combine();
  void expect(bool capacity_error, const char* call, const std::function<void()>& action);

  Engine& engine_;
  const Scene& scene_;
  int lane_, step_ = -1;
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
