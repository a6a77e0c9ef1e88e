/* SPDX-License-Identifier: Apache-2.0 */
/* C++: tensors and metadata in the shape of StepMesh's. */
#ifndef STEPAF_CXX_AF_TYPES_HPP
#define STEPAF_CXX_AF_TYPES_HPP

#include <functional>
#include <vector>

#include <stepaf/stepaf.hpp>

#if !STEPAF_CXX_EXCEPTIONS
#error "stepaf/af_tensor.hpp takes exceptions; stepaf.hpp does without"
#endif

namespace stepaf::af
{

using Key = std::uint64_t;

/** A view of a tensor, made from a pointer and bytes, or from any object that has data_ptr() and
 *  nbytes(), as torch's tensors have. The tensor must be contiguous, in registered memory, and
 *  alive while it is used. */
struct Tensor {
    void *data = nullptr;
    std::size_t bytes = 0;
    stepaf_dtype_t dtype = STEPAF_U8; /* of received tensors: as the key is declared */
    int ndim = 0;
    std::int64_t shape[STEPAF_MAX_DIMS] = {};

    Tensor() noexcept = default;
    Tensor(void *at, std::size_t size) noexcept : data(at), bytes(size) {}
    template <class T, class = decltype(std::declval<const T &>().data_ptr()),
              class = decltype(std::declval<const T &>().nbytes())>
    Tensor(const T &tensor) : data(tensor.data_ptr()), bytes(tensor.nbytes())
    {
    }
    explicit Tensor(const tensor_info &info) noexcept
        : data(info.data), bytes(info.bytes), dtype(info.dtype), ndim(info.ndim)
    {
        for (int i = 0; i < ndim && i < STEPAF_MAX_DIMS; i++)
            shape[i] = info.shape[i];
    }
    /** The elements as @a T, in host memory. */
    template <class T>
    span<T> as() const noexcept
    {
        return {static_cast<T *>(data), bytes / sizeof(T)};
    }
};

/** A tensor and its key. */
struct KeyTensor {
    Key key = 0;
    Tensor val;
};

/** The tensors of a batch, in the order of the worker's call. */
class KeyTensors
{
  public:
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    const KeyTensor *begin() const noexcept { return tensors_; }
    const KeyTensor *end() const noexcept { return tensors_ + size_; }
    /** @param i  0 .. size() - 1 */
    const KeyTensor &operator[](std::size_t i) const noexcept { return tensors_[i]; }
    /** Append a tensor; a batch has at most STEPAF_MAX_TENSORS each way. */
    void add(const tensor_info &info) noexcept
    {
        if (size_ < STEPAF_MAX_TENSORS)
            tensors_[size_++] = {info.key, Tensor(info)};
    }

  private:
    std::size_t size_ = 0;
    KeyTensor tensors_[STEPAF_MAX_TENSORS];
};

/** One operation of one worker, as it arrived at a server. Copies refer to the same batch. The
 *  batch and its push tensors are valid until the response. */
struct AFTensorMeta {
    int sender_rank = -1; /* within the attention group */
    stepaf_batch_h batch = nullptr;
    KeyTensors push_tensors; /* in the receive buffers */
    KeyTensors pull_tensors; /* expected: key and largest bytes, data NULL */
};

namespace detail
{

inline timeout milliseconds(std::uint64_t timeout_ms) noexcept
{
    constexpr std::uint64_t longest_ms = INT64_MAX / 1000000; /* as nanoseconds, too */

    return std::chrono::milliseconds(timeout_ms < longest_ms ? timeout_ms : longest_ms);
}

/** Convert tensors for the C API. More than @a n are STEPAF_ERR_INVALID. */
inline int convert(const std::vector<KeyTensor> &from, tensor *to, std::size_t n)
{
    if (from.size() > n)
        throw error(STEPAF_ERR_INVALID, true);
    for (std::size_t i = 0; i < from.size(); i++)
        to[i] = {from[i].key, from[i].val.data, from[i].val.bytes};
    return static_cast<int>(from.size());
}

} // namespace detail
} // namespace stepaf::af

#endif
