#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include "gpu/context.cuh"

namespace moelane::gpu {

inline const char* name_of(CallKind call) {
  constexpr const char* kNames[kCallKinds] = {"dispatch_send", "dispatch_recv", "combine_send",
                                              "combine_recv",  "dispatch",      "combine"};
  return kNames[static_cast<int>(call)];
}

// Shows a launch to profilers, where NVTX is there.
class NvtxRange {
 public:
#if __has_include(<nvtx3/nvToolsExt.h>)
  explicit NvtxRange(CallKind call) { nvtxRangePushA(name_of(call)); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(CallKind) {}
  ~NvtxRange() {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace moelane::gpu
