#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/DimVector.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>

#include "torch/pool.h"

namespace anyaccel::sim {

/// Numbers that describe something: equal for what is equal.
using Words = c10::SmallVector<std::int64_t, 48>;

using Tensors = c10::SmallVector<at::Tensor, 6>;

/// Shape and type of a tensor, without its memory.
struct Layout {
  at::ScalarType dtype = at::kFloat;
  c10::DimVector sizes;
  c10::DimVector strides;

  static Layout of(const at::Tensor& tensor);
};

/// The tensors of one call as plain numbers, so that a task owns no tensor of the device: its memory lives by stream order alone.
///
/// Tensors of the host are kept by their storage, since nothing else orders their end after the task's.
/// There is one entry per TensorImpl and one storage per StorageImpl: kernels that look for overlap must see the same relations.
class Operands : public Pooled<Operands> {
 public:
  struct Operand {
    Layout layout;
    std::int64_t offset;
    std::int32_t storage;  ///< index among the storages
    bool conjugate, negative, wrapped_number;
  };

  /// The index of `tensor`, which is added if it is new.
  std::int32_t add(const at::Tensor& tensor);

  std::size_t size() const noexcept { return starts_.size(); }
  c10::IntArrayRef sizes(std::int32_t index) const noexcept;
  Operand at(std::int32_t index) const;

  /// True if a dimension of several elements has one address.
  bool overlaps_itself(std::int32_t index) const noexcept;

  bool is_conjugate(std::int32_t index) const noexcept;
  bool is_negative(std::int32_t index) const noexcept;

  /// True for a tensor of the host.
  bool is_host(std::int32_t index) const noexcept { return static_cast<bool>(storages_[storage_of(index)].host); }

  /// Looks at the tensor again: what was resized has another shape and memory.
  void refresh(std::int32_t index, const at::Tensor& tensor);

  /// Replaces the host tensors by copies of their present values, since tasks read them later.
  void snapshot_host_tensors();

  /// Lets go of host memory, which then has to live by other means: the pinned allocator knows which copies are pending.
  void release_host_memory();

  /// CPU tensors over the same memory. They cannot be resized.
  Tensors on_cpu() const;

  /// Meta tensors of the same shapes and alias relations.
  Tensors on_meta() const;

  /// Appends all that the shape of a result can depend on: shapes, types, bits and alias relations.
  void describe(Words& key) const;

  /// Appends what does not change with the shapes: types, numbers of dimensions, bits and alias relations.
  void describe_kind(Words& key) const;

  /// Forgets which tensors these were. To be called before a task takes the operands.
  void forget_tensors() { impls_.clear(), storage_impls_.clear(); }

 private:
  struct Memory {
    void* data;
    std::size_t bytes;
    c10::Storage host;  ///< what keeps host memory alive; empty for memory of the device
  };

  // An operand's words: one with type, dimensions, storage and bits, then sizes and strides.
  static std::int64_t head(const c10::TensorImpl& tensor, std::int32_t storage) noexcept;
  std::int32_t storage_of(std::int32_t index) const noexcept;
  c10::IntArrayRef strides(std::int32_t index) const noexcept;
  Tensors over(c10::DispatchKey key, c10::Storage (*storage_for)(const Memory&)) const;
  std::int32_t add_storage(const c10::Storage& storage);

  Words words_;
  c10::SmallVector<std::int32_t, 6> starts_;   ///< of each operand, in words_
  c10::SmallVector<std::int64_t, 6> offsets_;  ///< of each operand, in its storage
  c10::SmallVector<Memory, 6> storages_;
  c10::SmallVector<const c10::TensorImpl*, 6> impls_;
  c10::SmallVector<const c10::StorageImpl*, 6> storage_impls_;
};

/// A tensor like `operand` over `storage`.
at::Tensor tensor_of(const Operands::Operand& operand, c10::Storage storage, c10::DispatchKey key);

c10::Storage meta_storage(std::size_t bytes);

}  // namespace anyaccel::sim
