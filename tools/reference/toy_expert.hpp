#pragma once

#include <cstddef>
#include <cstdint>

#include "moelane/config.hpp"

namespace moelane::tools {

// The experts of the program and the tests: y[j] = round(x[j] * g) to combine_dtype, where g = factor(expert)
// * scale[j / block] is exact (powers of two), so that an expert is one multiply and one rounding. `block` is
// ceil(hidden / scale_columns). factor(e) = 2^((e mod 5) - 2).
// `x`: hidden elements of dtype; `scales`: scale_columns fp32, packed; null or of another size (scale_bytes):
// taken as 1; `y`: hidden elements. All at any alignment. Vectorised, for all dtypes.
void toy_expert(const Config& config, std::int32_t expert, const std::byte* x, const std::byte* scales,
                std::byte* y);

// The same for a fused kernel of the ranked layout: y = round(sum over k of weights[k] *
// toy_expert(ids[k])(x)) in the arithmetic of combine (float32 fma in order, local ids < 0 skipped, rounding
// to combine_dtype). `experts` gives the expert id of each local number.
void toy_experts_ranked(const Config& config, const std::int32_t* experts, const std::int32_t* ids,
                        const float* weights, const std::byte* x, const std::byte* scales, std::byte* y);

}  // namespace moelane::tools
