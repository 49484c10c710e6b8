#include "torch/worker.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace anyaccel::sim {
namespace {

thread_local bool is_worker = false;

/// The thread counts of the libraries that torch computes with. at::set_num_threads() is not for workers: it sets the count of
/// every thread that starts later, too.
struct ThreadCounts {
  void (*set_openmp)(int) = nullptr;
  int (*get_openmp)() = nullptr;
  int (*set_mkl)(int) = nullptr;  // of this thread; returns the previous one

  ThreadCounts() {
    // Looked up through torch's own library: a process may hold several OpenMP runtimes.
    Dl_info torch{};
    if (!dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch)) return;
    void* library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    set_openmp = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
    get_openmp = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
    set_mkl = reinterpret_cast<int (*)(int)>(dlsym(library, "MKL_Set_Num_Threads_Local"));
  }

  static const ThreadCounts& get() {
    static const ThreadCounts counts;
    return counts;
  }
};

class Collector : public c10::WarningHandler {
 public:
  // Nobody reads that many; a kernel in a loop that nothing waits for must not fill the memory.
  static constexpr std::size_t kCapacity = 256;

  void process(const c10::Warning& warning) override {
    std::lock_guard lock(mutex_);
    if (warnings_.size() < kCapacity) warnings_.push_back(warning);
    some_.store(true, std::memory_order_release);
  }

  std::vector<c10::Warning> take() {
    if (!some_.load(std::memory_order_acquire)) return {};
    std::lock_guard lock(mutex_);
    some_.store(false, std::memory_order_relaxed);
    return std::exchange(warnings_, {});
  }

  static Collector& get() {
    static auto* collector = new Collector;  // leaked: workers may outlive the statics
    return *collector;
  }

 private:
  std::atomic<bool> some_{false};
  std::mutex mutex_;
  std::vector<c10::Warning> warnings_;
};

}  // namespace

void prepare_worker() {
  is_worker = true;
  c10::setThreadName("sim worker");
  at::internal::lazy_init_num_threads();  // does so at the first parallel loop otherwise, and undoes what follows
  const auto& counts = ThreadCounts::get();
  if (counts.set_openmp) counts.set_openmp(1);
  if (counts.set_mkl) counts.set_mkl(1);
  c10::GradMode::set_enabled(false);
  thread_local at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::WarningUtils::set_warning_handler(&Collector::get());
}

std::vector<c10::Warning> take_warnings() { return Collector::get().take(); }

OneThread::OneThread() noexcept {
  if (is_worker) return;
  const auto& counts = ThreadCounts::get();
  if (counts.get_openmp && counts.set_openmp) {
    openmp_ = counts.get_openmp();
    counts.set_openmp(1);
  }
  if (counts.set_mkl) mkl_ = counts.set_mkl(1);
}

OneThread::~OneThread() {
  if (is_worker) return;
  const auto& counts = ThreadCounts::get();
  if (openmp_) counts.set_openmp(openmp_);
  if (counts.set_mkl) counts.set_mkl(mkl_);
}

}  // namespace anyaccel::sim
