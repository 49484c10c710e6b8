#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/DimVector.h>

#include <cstdint>
#include <vector>

namespace anyaccel::sim {

/// Shape and type of a tensor, without its memory.
struct Layout {
  at::ScalarType dtype = at::kFloat;
  c10::DimVector sizes;
  c10::DimVector strides;

  static Layout of(const at::Tensor& tensor);
  bool operator==(const Layout& other) const { return dtype == other.dtype && sizes == other.sizes && strides == other.strides; }
};

/// The tensors of one call as plain numbers, so that a task owns no tensor of the device: its memory lives by stream order alone.
///
/// Tensors of the host are kept by their storage, since nothing else orders their end after the task's.
/// There is one entry per TensorImpl and one storage per StorageImpl: kernels that look for overlap must see the same relations.
class Operands {
 public:
  struct Operand {
    Layout layout;
    std::int64_t offset = 0;
    std::int32_t storage = 0;  ///< index among the storages
    bool conjugate = false;
    bool negative = false;
    bool wrapped_number = false;
  };

  /// The index of `tensor`, which is added if it is new.
  std::int32_t add(const at::Tensor& tensor);

  /// True for a tensor of the host.
  bool is_host(const Operand& operand) const { return static_cast<bool>(storages_[operand.storage].host); }

  /// Looks at the tensor again: what was resized has another shape and memory.
  void refresh(std::int32_t index, const at::Tensor& tensor);

  const std::vector<Operand>& all() const noexcept { return operands_; }

  /// Replaces the host tensors by copies of their present values, since tasks read them later.
  void snapshot_host_tensors();

  /// Lets go of host memory, which then has to live by other means: the pinned allocator knows which copies are pending.
  void release_host_memory();

  /// CPU tensors over the same memory. They cannot be resized.
  std::vector<at::Tensor> on_cpu() const;

  /// Meta tensors of the same shapes and alias relations.
  std::vector<at::Tensor> on_meta() const;

  /// CPU tensors of the same shapes over zeros: for the few operators whose shapes only the CPU kernel knows.
  std::vector<at::Tensor> on_zeros() const;

  /// Appends all that the shape of a result can depend on: shapes, types, bits and alias relations.
  void describe(std::vector<std::int64_t>& key) const;

  /// Forgets which tensors these were. To be called before a task takes the operands.
  void forget_tensors() { impls_.clear(), storage_impls_.clear(); }

 private:
  struct Memory {
    void* data;
    std::size_t bytes;
    c10::Storage host;  ///< what keeps host memory alive; empty for memory of the device
  };

  std::vector<at::Tensor> over(c10::DispatchKey key, c10::Storage (*storage_for)(const Memory&)) const;
  std::int32_t add_storage(const c10::Storage& storage);

  std::vector<Operand> operands_;
  std::vector<Memory> storages_;
  std::vector<const c10::TensorImpl*> impls_;
  std::vector<const c10::StorageImpl*> storage_impls_;
};

}  // namespace anyaccel::sim
