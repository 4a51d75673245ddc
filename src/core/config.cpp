#include "moelane/config.hpp"

#include <string>

#include "moelane/error.hpp"

namespace moelane {
namespace {

template <class V>
std::string text(V value) {
  return std::to_string(value);
}

[[noreturn]] void refuse(const std::string& field, const std::string& value, const std::string& allowed) {
  throw Error(ErrorKind::argument, field + " is " + value + ", allowed is " + allowed);
}

void in_range(const char* field, long long value, long long low, long long high) {
  if (value < low || value > high) refuse(field, text(value), text(low) + " to " + text(high));
}

bool is_answer(DType type) { return type == DType::bf16 || type == DType::fp16 || type == DType::fp32; }

}  // namespace

std::string_view name_of(Layout layout) {
  switch (layout) {
    case Layout::padded:
      return "padded";
    case Layout::contiguous:
      return "contiguous";
    case Layout::ranked:
      return "ranked";
  }
  return "?";
}

std::string_view name_of(Way way) {
  switch (way) {
    case Way::automatic:
      return "auto";
    case Way::put:
      return "put";
    case Way::direct:
      return "direct";
  }
  return "?";
}

void Config::validate(int ranks) const {
  in_range("ranks", ranks, 1, 1024);
  in_range("experts", experts, 1, 65536);
  in_range("topk", topk, 1, 32);
  in_range("hidden", hidden, 1, 1 << 20);
  in_range("max_tokens", max_tokens, 1, (1 << 22) - 1);
  in_range("tp_size", tp_size, 1, ranks);
  if (ranks % tp_size != 0) refuse("tp_size", text(tp_size), "a divisor of the " + text(ranks) + " ranks");
  in_range("in_flight", in_flight, 1, 64);
  if (!is_answer(dtype) && dtype != DType::fp8_e4m3) {
    refuse("dtype", std::string(name_of(dtype)), "fp8_e4m3, bf16, fp16 or fp32");
  }
  if (!is_answer(combine_dtype))
    refuse("combine_dtype", std::string(name_of(combine_dtype)), "bf16, fp16 or fp32");
  if (!is_answer(out_dtype)) refuse("out_dtype", std::string(name_of(out_dtype)), "bf16, fp16 or fp32");
  in_range("scale_columns", scale_columns, 0, 1 << 20);
  if (scale_bytes != 1 && scale_bytes != 2 && scale_bytes != 4 && scale_bytes != 8) {
    refuse("scale_bytes", text(scale_bytes), "1, 2, 4 or 8");
  }
  if (name_of(layout) == "?")
    refuse("layout", text(static_cast<int>(layout)), "padded, contiguous or ranked");
  if (name_of(way) == "?") refuse("way", text(static_cast<int>(way)), "automatic, put or direct");
  in_range("alignment", alignment, 1, 65536);
  if (alignment != 1 && layout != Layout::contiguous) {
    refuse("alignment", text(alignment), "1 unless layout is contiguous");
  }
  if (partial_sums && layout == Layout::ranked) {
    refuse("partial_sums", "true", "false with the ranked layout, whose rows are sums already");
  }
  if (way == Way::direct && partial_sums) refuse("way", "direct", "put or auto with partial_sums");
  if (way == Way::direct && force_puts) refuse("way", "direct", "put or auto with force_puts");
  if (way == Way::direct && network) refuse("way", "direct", "put or auto between machines");
  in_range("num_sms", num_sms, 0, 1024);
  if (!(timeout > 0)) refuse("timeout", text(timeout), "more than 0 seconds, or infinity");
  in_range("symmetric_bytes", static_cast<long long>(symmetric_bytes), 0, 1LL << 42);
  // Counts travel in 24 bits and rows are numbered by 32.
  in_range("max_tokens * topk", static_cast<long long>(max_tokens) * topk, 1, (1 << 24) - 1);
  in_range("rows of a step (groups * max_tokens * topk + experts * alignment)",
           static_cast<long long>(ranks / tp_size) * max_tokens * topk +
               static_cast<long long>(experts) * alignment,
           1, (1LL << 31) - 1);
}

std::string Config::canonical() const {
  std::string out;
  const auto add = [&](const char* key, const std::string& value) {
    out += std::string(key) + "=" + value + "\n";
  };
  add("experts", text(experts));
  add("topk", text(topk));
  add("hidden", text(hidden));
  add("max_tokens", text(max_tokens));
  add("tp_size", text(tp_size));
  add("in_flight", text(in_flight));
  add("dtype", std::string(name_of(dtype)));
  add("combine_dtype", std::string(name_of(combine_dtype)));
  add("out_dtype", std::string(name_of(out_dtype)));
  add("scale_columns", text(scale_columns));
  add("scale_bytes", text(scale_bytes));
  add("layout", std::string(name_of(layout)));
  add("alignment", text(alignment));
  add("way", std::string(name_of(way)));
  add("partial_sums", text(static_cast<int>(partial_sums)));
  add("force_puts", text(static_cast<int>(force_puts)));
  add("network", text(static_cast<int>(network)));
  add("symmetric_bytes", text(symmetric_bytes));
  return out;
}

}  // namespace moelane
