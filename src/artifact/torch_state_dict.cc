// SPDX-License-Identifier: Apache-2.0
#include "artifact/torch_state_dict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "artifact/printable.h"
#include "artifact/sizes.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

using Kind = PickleValue::Kind;

// Arguments of torch._utils._rebuild_tensor_v2.
enum TensorArg { kStorage, kOffset, kShape, kStrides, kRequiresGrad, kHooks, kMetadata };
constexpr size_t kMinTensorArgs = kHooks + 1;  // metadata came with torch 1.10
constexpr size_t kMaxTensorArgs = kMetadata + 1;

// Members of a storage's persistent id.
enum StorageId { kTag, kType, kKey, kLocation, kNumElements, kView };
constexpr size_t kMinStorageId = kNumElements + 1;
constexpr size_t kMaxStorageId = kView + 1;  // the form before torch 1.6

Status WrongKind(std::string_view field, const PickleValue& found, std::string_view needed) {
  return InvalidArgument(
      fmt::format("{}: got {}, {} is needed", field, PickleKindName(found.kind), needed));
}

Result<TorchStorage> ReadStorage(const Pickle& pickle, const PickleValue& value) {
  if (value.kind != Kind::kStorage) return WrongKind("storage", value, "a persistent id");
  const PickleValue& id = pickle[value.items.front()];
  if (id.items.size() < kMinStorageId || id.items.size() > kMaxStorageId)
    return InvalidArgument(fmt::format("storage: persistent id of {} members, {} are needed",
                                       id.items.size(), kMinStorageId));
  const auto member = [&](StorageId i) -> const PickleValue& { return pickle[id.items[i]]; };
  if (member(kTag).kind != Kind::kText || member(kTag).text != "storage")
    return InvalidArgument(fmt::format("storage: persistent id of {}, 'storage' is needed",
                                       ShowPickleValue(member(kTag))));
  if (member(kType).kind != Kind::kGlobal || member(kType).global != PickleGlobal::kStorageType)
    return WrongKind("storage: type", member(kType), "a storage type such as torch.FloatStorage");
  if (member(kKey).kind != Kind::kText) return WrongKind("storage: key", member(kKey), "a text");
  if (member(kLocation).kind != Kind::kText)
    return WrongKind("storage: location", member(kLocation), "a text");
  if (member(kNumElements).kind != Kind::kInt || member(kNumElements).number < 0)
    return InvalidArgument(
        fmt::format("storage: elements: got {}, a whole number of 0 or more is needed",
                    ShowPickleValue(member(kNumElements))));
  if (id.items.size() == kMaxStorageId && member(kView).kind != Kind::kNone)
    return Unimplemented(
        "storage: is a view of another storage, as torch before 0.4 wrote; load and save it again "
        "with a newer torch");
  return TorchStorage{.key = member(kKey).text,
                      .dtype = member(kType).dtype,
                      .num_elements = member(kNumElements).number};
}

// A tuple of numbers of 0 or more.
Result<std::vector<int64_t>> ReadSizes(const Pickle& pickle, const PickleValue& tuple,
                                       std::string_view field) {
  if (tuple.kind != Kind::kTuple) return WrongKind(field, tuple, "a tuple");
  if (tuple.items.size() > Shape::kMaxRank)
    return Unimplemented(fmt::format("{}: {} dimensions, at most {} are supported", field,
                                     tuple.items.size(), Shape::kMaxRank));
  std::vector<int64_t> sizes;
  for (const PickleIdx idx : tuple.items) {
    if (pickle[idx].kind != Kind::kInt || pickle[idx].number < 0)
      return InvalidArgument(fmt::format("{}: got {}, whole numbers of 0 or more are needed", field,
                                         ShowPickleValue(pickle[idx])));
    sizes.push_back(pickle[idx].number);
  }
  return sizes;
}

// The elements that the tensor spans, first to last, lie within its storage.
Status CheckWithin(const TorchTensor& tensor) {
  if (tensor.shape.num_elements() == 0) return Status::Ok();
  int64_t end = 1;  // of the span that begins at the offset
  bool overflows = false;
  for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
    int64_t reach = 0;
    overflows |= __builtin_mul_overflow(tensor.shape[axis] - 1,
                                        tensor.strides[static_cast<size_t>(axis)], &reach) ||
                 __builtin_add_overflow(end, reach, &end);
  }
  overflows |= __builtin_add_overflow(end, tensor.offset, &end);
  if (overflows || end > tensor.storage.num_elements)
    return InvalidArgument(
        fmt::format("shape {} of strides {} at offset {} leaves storage {}, "
                    "which has {} elements",
                    tensor.shape.ToString(), tensor.strides, tensor.offset,
                    Printable(tensor.storage.key), tensor.storage.num_elements));
  return Status::Ok();
}

// By growing stride, each axis must step over all that those before it span. Refuses expanded
// tensors, of which a small file could describe any amount, and a few odd ones without overlap that
// only as_strided can make.
Status CheckNoOverlap(const TorchTensor& tensor) {
  if (tensor.shape.num_elements() == 0) return Status::Ok();
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (int axis = 0; axis < tensor.shape.rank(); ++axis)
    if (tensor.shape[axis] > 1)
      axes.emplace_back(tensor.strides[static_cast<size_t>(axis)], tensor.shape[axis]);
  std::sort(axes.begin(), axes.end());
  int64_t span = 1;
  for (const auto& [stride, size] : axes) {
    if (stride < span)
      return Unimplemented(fmt::format(
          "shape {} of strides {}: elements share memory (expanded tensors are not read; save "
          "tensor.contiguous())",
          tensor.shape.ToString(), tensor.strides));
    span += stride * (size - 1);  // CheckWithin has bounded it
  }
  return Status::Ok();
}

// Conjugate and negative bits: {} or None, else the numbers in the file are not those of the
// tensor.
Status CheckMetadata(const PickleValue& metadata) {
  if (metadata.kind == Kind::kNone || (metadata.kind == Kind::kDict && metadata.items.empty()))
    return Status::Ok();
  return Unimplemented(
      "is a conjugate or negative view, which is not read; save "
      "tensor.resolve_conj().resolve_neg()");
}

Result<TorchTensor> ReadTensor(const Pickle& pickle, const PickleValue& value) {
  const std::vector<PickleIdx>& args = pickle[value.items.front()].items;
  if (args.size() < kMinTensorArgs || args.size() > kMaxTensorArgs)
    return InvalidArgument(fmt::format("_rebuild_tensor_v2: {} arguments, {} or {} are needed",
                                       args.size(), kMinTensorArgs, kMaxTensorArgs));
  TorchTensor tensor;
  ASSIGN_OR_RETURN(tensor.storage, ReadStorage(pickle, pickle[args[kStorage]]));
  const PickleValue& offset = pickle[args[kOffset]];
  if (offset.kind != Kind::kInt || offset.number < 0)
    return InvalidArgument(fmt::format("offset: got {}, a whole number of 0 or more is needed",
                                       ShowPickleValue(offset)));
  tensor.offset = offset.number;
  ASSIGN_OR_RETURN(const std::vector<int64_t> dims,
                   ReadSizes(pickle, pickle[args[kShape]], "shape"));
  ASSIGN_OR_RETURN(tensor.strides, ReadSizes(pickle, pickle[args[kStrides]], "strides"));
  if (dims.size() != tensor.strides.size())
    return InvalidArgument(
        fmt::format("shape {} and strides {} differ in length", dims, tensor.strides));
  if (pickle[args[kRequiresGrad]].kind != Kind::kBool)
    return WrongKind("requires_grad", pickle[args[kRequiresGrad]], "a bool");
  const PickleValue& hooks = pickle[args[kHooks]];
  if (hooks.kind != Kind::kDict || !hooks.items.empty())
    return Unimplemented("backward_hooks: an empty OrderedDict is needed");
  if (args.size() == kMaxTensorArgs) RETURN_IF_ERROR(CheckMetadata(pickle[args[kMetadata]]));
  ASSIGN_OR_RETURN(tensor.shape, MakeShape(dims));
  RETURN_IF_ERROR(CheckWithin(tensor));
  RETURN_IF_ERROR(CheckNoOverlap(tensor));
  return tensor;
}

}  // namespace

Result<std::vector<TorchTensor>> ReadStateDict(const Pickle& pickle) {
  const PickleValue& root = pickle[pickle.root];
  if (root.kind != Kind::kDict)
    return Unimplemented(fmt::format("holds {}, a state dict (names to tensors) is needed",
                                     PickleKindName(root.kind)));
  std::vector<TorchTensor> tensors;
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < root.items.size(); i += 2) {
    const PickleValue& key = pickle[root.items[i]];
    const PickleValue& value = pickle[root.items[i + 1]];
    if (key.kind != Kind::kText)
      return Unimplemented(
          fmt::format("a key of the state dict is {}, a text is needed", PickleKindName(key.kind)));
    if (!names.insert(key.text).second)
      return InvalidArgument(fmt::format("{} comes twice", Printable(key.text)));
    if (value.kind != Kind::kTensor)
      return Unimplemented(
          fmt::format("{}: is {}, a tensor is needed (save the model's "
                      "state_dict() alone)",
                      Printable(key.text), PickleKindName(value.kind)));
    Result<TorchTensor> tensor = ReadTensor(pickle, value);
    if (!tensor.ok()) return tensor.status().WithPrefix(Printable(key.text));
    tensor->name = std::string(key.text);
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

}  // namespace inflight::artifact
