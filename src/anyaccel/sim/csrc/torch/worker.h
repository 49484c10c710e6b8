#pragma once
#include <c10/util/Exception.h>

#include <vector>

namespace anyaccel::sim {

/// Makes this thread one that runs tasks: one intra-op thread, no gradients, and warnings kept for the host.
void prepare_worker();

/// What workers have warned of since the last call.
std::vector<c10::Warning> take_warnings();

/// One intra-op thread for what runs in this scope, so that numbers do not depend on the schedule. Workers have that anyway.
class OneThread {
 public:
  OneThread() noexcept;
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int openmp_ = 0;
  int mkl_ = 0;
};

}  // namespace anyaccel::sim
