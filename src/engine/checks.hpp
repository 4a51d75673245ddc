#pragma once

#include "moelane/config.hpp"
#include "moelane/engine.hpp"
#include "moelane/placement.hpp"
#include "protocol/views.hpp"

// Turns the caller's tensors into checked views. Every refusal is an Error(argument) with one sentence.
namespace moelane {

// `device`: where this rank's tensors have to lie.
Input check_input(const Config& config, const DispatchInput& in, Device device = Device::cpu);
Output check_output(const Config& config, int local_experts, const DispatchOutput& out,
                    Device device = Device::cpu);
// `capacity`: rows of each expert, or in all, that the lane's dispatch had.
ExpertRows check_expert_rows(const Config& config, int local_experts, std::int32_t capacity,
                             const TensorView& rows, Device device = Device::cpu);
CombineOutput check_combine_output(const Config& config, const TensorView& out, std::int32_t tokens,
                                   bool accumulate, Device device = Device::cpu);

// Refuses a tensor that does not lie in [begin, begin + bytes); `name` is the argument's.
void check_symmetric(const char* name, const TensorView& tensor, const std::byte* begin, std::size_t bytes);

}  // namespace moelane
