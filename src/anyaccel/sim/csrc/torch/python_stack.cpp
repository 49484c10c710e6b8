#include "torch/python_stack.h"

// How a thread's frames hang together is not part of Python's public interface, which makes an object of each frame that is looked
// at, under the GIL. The versions named here are read directly, the others through that interface.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
#define ANYACCEL_READS_FRAMES 1
#define Py_BUILD_CORE 1
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#define ANYACCEL_READS_FRAMES 0
#endif
#include <torch/csrc/utils/pythoncapi_compat.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

#include "torch/interpreter.h"
#include "torch/pool.h"

namespace anyaccel::sim {
namespace {

/// A code object that stays while a stack refers to it. Frames share one, so that taking a stack needs no GIL.
struct Code {
  PyCodeObject* object;
  std::atomic<int> references{1};

  void release() noexcept;
};

/// Code objects that nobody refers to any more: they can be let go only under the GIL.
class Unused {
 public:
  void add(PyCodeObject* object) {
    const std::lock_guard lock(mutex_);
    objects_.push_back(object);
    some_.store(true, std::memory_order_release);
  }

  bool some() const noexcept { return some_.load(std::memory_order_acquire); }

  void let_go() {
    std::vector<PyCodeObject*> objects;
    {
      const std::lock_guard lock(mutex_);
      objects.swap(objects_);
      some_.store(false, std::memory_order_relaxed);
    }
    for (auto* object : objects) Py_DECREF(object);
  }

  static Unused& get() {
    static auto* const unused = new Unused;  // leaked: threads may end after the statics
    return *unused;
  }

 private:
  std::atomic<bool> some_{false};
  std::mutex mutex_;
  std::vector<PyCodeObject*> objects_;
};

void Code::release() noexcept {
  if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  Unused::get().add(object);
  delete this;
}

/// A frame that is being executed.
struct Position {
  PyCodeObject* code;
  int instruction;  ///< its offset in bytes
};

#if ANYACCEL_READS_FRAMES
/// This thread's frames, innermost first. They cannot change while the thread is here, so that this needs no GIL.
void walk(PyThreadState* thread, std::vector<Position>& positions) {
#if PY_VERSION_HEX >= 0x030D0000
  const auto* frame = thread->current_frame;
#else
  const auto* frame = thread->cframe->current_frame;
#endif
  for (; frame; frame = frame->previous) {
#if PY_VERSION_HEX >= 0x030C0000
    if (frame->owner == FRAME_OWNED_BY_CSTACK) continue;
#endif
    auto* const running = const_cast<_PyInterpreterFrame*>(frame);
    if (_PyFrame_IsIncomplete(running)) continue;
#if PY_VERSION_HEX >= 0x030D0000
    auto* const code = _PyFrame_GetCode(running);
#else
    auto* const code = frame->f_code;
#endif
    positions.push_back({code, _PyInterpreterFrame_LASTI(running) * static_cast<int>(sizeof(_Py_CODEUNIT))});
  }
}
#else
void walk(PyThreadState*, std::vector<Position>& positions) {
  const WithGil gil;
  auto* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame) {
    auto* const code = PyFrame_GetCode(frame);
    positions.push_back({code, PyFrame_GetLasti(frame)});
    Py_DECREF(code);  // the frame keeps it
    auto* const back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
}
#endif

}  // namespace

struct PythonStack::Frame : Pooled<PythonStack::Frame> {
  Frame(Code* its_code, int its_instruction, Frame* its_caller) noexcept
      : code(its_code), instruction(its_instruction), caller(its_caller) {
    code->references.fetch_add(1, std::memory_order_relaxed);
    if (caller) caller->add_references(1);
  }

  void add_references(int count) noexcept { references.fetch_add(count, std::memory_order_relaxed); }

  /// Ends this frame if nobody refers to it any more, and then what it referred to.
  static void release(Frame* frame) noexcept {
    while (frame && frame->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      frame->code->release();
      auto* const caller = frame->caller;
      delete frame;
      frame = caller;
    }
  }

  Code* const code;
  const int instruction;
  Frame* const caller;
  std::atomic<int> references{1};
};

namespace {

/// What a thread knows from the stacks that it took before.
class Taken {
 public:
  Taken() { Pool<sizeof(PythonStack::Frame)>::outlive(); }

  ~Taken() {
    settle();
    for (auto* frame : frames_) PythonStack::Frame::release(frame);
    forget_codes();
  }

  /// The innermost frame of a stack, which has a reference for the caller; null if there is none.
  PythonStack::Frame* take(PyThreadState* thread) {
    // First, since it may run code that takes stacks as well.
    if (Unused::get().some()) {
      const WithGil gil;
      Unused::get().let_go();
    }
    positions_.clear();
    walk(thread, positions_);
    std::size_t common = 0;
    while (common < std::min(frames_.size(), positions_.size()) && same(*frames_[common], positions_[positions_.size() - 1 - common])) {
      ++common;
    }
    if (common == frames_.size() && common == positions_.size()) return again();
    settle();
    while (frames_.size() > common) {
      PythonStack::Frame::release(frames_.back());
      frames_.pop_back();
    }
    for (auto depth = common; depth < positions_.size(); ++depth) {
      const auto& position = positions_[positions_.size() - 1 - depth];
      auto* const caller = frames_.empty() ? nullptr : frames_.back();
      frames_.push_back(new PythonStack::Frame(code(position.code), position.instruction, caller));
    }
    if (frames_.empty()) return nullptr;
    frames_.back()->add_references(1);
    return frames_.back();
  }

 private:
  static constexpr std::size_t kMostCodes = 4096;
  static constexpr int kAdvance = 256;

  /// The last stack once more. Workers drop its references all the time: those of a loop are taken in advance, by the hundred, so that
  /// the counter need not travel between the threads at each call.
  PythonStack::Frame* again() {
    if (frames_.empty()) return nullptr;
    if (advance_ == 0) {
      frames_.back()->add_references(kAdvance);
      advance_ = kAdvance;
    }
    --advance_;
    return frames_.back();
  }

  /// Gives back what was taken in advance and not used.
  void settle() noexcept {
    if (advance_ != 0) frames_.back()->add_references(-std::exchange(advance_, 0));
  }

  static bool same(const PythonStack::Frame& frame, const Position& position) noexcept {
    return frame.code->object == position.code && frame.instruction == position.instruction;
  }

  Code* code(PyCodeObject* object) {
    if (const auto known = codes_.find(object); known != codes_.end()) return known->second;
    if (codes_.size() >= kMostCodes) forget_codes();
    {
      const WithGil gil;
      Py_INCREF(object);
    }
    return codes_.emplace(object, new Code{object}).first->second;
  }

  void forget_codes() {
    for (const auto& [object, code] : codes_) code->release();
    codes_.clear();
  }

  std::vector<Position> positions_;
  std::vector<PythonStack::Frame*> frames_;  ///< of the last stack, outermost first
  int advance_ = 0;                          ///< references to the last of them
  std::unordered_map<PyCodeObject*, Code*> codes_;
};

std::string text(PyObject* object) {
  const char* characters = object && PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (!characters) PyErr_Clear();
  return characters ? characters : "?";
}

}  // namespace

PythonStack PythonStack::here() {
  auto* const thread = python_runs() ? PyGILState_GetThisThreadState() : nullptr;
  if (!thread) return {};
  thread_local Taken taken;
  return PythonStack(taken.take(thread));
}

PythonStack::PythonStack(const PythonStack& other) noexcept : innermost_(other.innermost_) {
  if (innermost_) innermost_->add_references(1);
}

PythonStack& PythonStack::operator=(PythonStack other) noexcept {
  std::swap(innermost_, other.innermost_);
  return *this;
}

PythonStack::~PythonStack() { Frame::release(innermost_); }

std::string PythonStack::lines() const {
  if (!innermost_ || !python_runs()) return {};
  std::vector<const Frame*> outermost_first;
  for (const auto* frame = innermost_; frame; frame = frame->caller) outermost_first.push_back(frame);
  std::reverse(outermost_first.begin(), outermost_first.end());
  const WithGil gil;
  std::ostringstream lines;
  for (const auto* frame : outermost_first) {
    auto* const code = frame->code->object;
    lines << "  File \"" << text(code->co_filename) << "\", line " << PyCode_Addr2Line(code, frame->instruction) << ", in "
          << text(code->co_name) << '\n';
  }
  return lines.str();
}

}  // namespace anyaccel::sim
