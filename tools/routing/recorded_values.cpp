#include "routing/recorded_values.hpp"

#include <fmt/format.h>

namespace moelane::tools {

void refuse_id(const InputFile& file, std::string_view where, std::int64_t id, int experts) {
  file.refuse(fmt::format("{} is {}, must be -1 or an expert number from 0 to {}", where, id, experts - 1));
}

void refuse_weight(const InputFile& file, std::string_view where, double weight) {
  file.refuse(fmt::format("{} is {}, must be finite in float32", where, weight));
}

}  // namespace moelane::tools
