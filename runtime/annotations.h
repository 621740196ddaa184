// What tools are told of a plan (base/annotate.h), and Weft's profiler plug-in for NCCL of who
// calls it (plugins/nccl/context.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/annotate.h"
#include "plugins/nccl/context.h"
#include "runtime/communicators.h"
#include "weft/plan.h"

namespace weft::runtime {

// Registered once, at Commit(). Where nobody listens it is empty and costs nothing.
class Annotations {
 public:
  Annotations() = default;
  // Of the ops that `rank` issues. The plan must outlive it. NCCL has loaded its plug-ins by then,
  // with the first communicator.
  Annotations(const Plan& plan, int rank, const Communicators& communicators);

  const base::OpAnnotation* of(std::int32_t op) const { return ops_.empty() ? nullptr : &ops_[op]; }
  base::Label matrix(std::int32_t matrix) const {
    return matrices_.empty() ? base::Label() : matrices_[matrix];
  }

  // While it lives this thread's calls of NCCL are on behalf of the op, and of the one that runs as
  // one with it.
  class Attribution {
   public:
    Attribution(const Annotations& annotations, std::int32_t op, std::int64_t step);
    ~Attribution();
    Attribution(const Attribution&) = delete;
    Attribution& operator=(const Attribution&) = delete;

   private:
    const Annotations& annotations_;
  };

 private:
  std::vector<base::OpAnnotation> ops_;  // by Plan::ops
  std::vector<base::Label> matrices_;
  const Plan* plan_ = nullptr;
  int rank_ = -1;
  void (*set_context_)(const weft_nccl_context*) = nullptr;  // null: nobody asks
};

}  // namespace weft::runtime
