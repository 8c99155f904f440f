// SPDX-License-Identifier: Apache-2.0
#include "artifact/torch_file.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>
#include <utility>

#include "artifact/pickle.h"
#include "artifact/printable.h"
#include "artifact/sizes.h"
#include "artifact/torch_state_dict.h"
#include "artifact/zip_file.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

using Bytes = std::span<const std::byte>;
using Kind = PickleValue::Kind;
using StorageBytes = std::unordered_map<std::string_view, Bytes>;  // by key

constexpr std::string_view kLegacyMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr int64_t kLegacyProtocol = 1001;

constexpr std::string_view kLfsPointer = "version https://git-lfs";

constexpr std::string_view kRemedy =
    "; a state dict of dense tensors is needed: where you trust the file, load it with torch and "
    "save the model as safetensors";

// Every refusal of what torch could read says what to do.
Status WithRemedy(const Status& status, std::string_view file) {
  Status named = status.WithPrefix(file);
  if (named.code() != StatusCode::kUnimplemented) return named;
  return named.WithMessage(named.message() + std::string(kRemedy));
}

std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Gathers the elements of a tensor in row-major order.
void Gather(const TorchTensor& tensor, const std::byte* storage, std::byte* to) {
  const size_t element = SizeOf(tensor.storage.dtype);
  std::vector<int64_t> index(tensor.strides.size(), 0);
  int64_t at = tensor.offset;
  for (int64_t i = 0; i < tensor.shape.num_elements(); ++i, to += element) {
    std::memcpy(to, storage + static_cast<size_t>(at) * element, element);
    for (size_t axis = index.size(); axis-- > 0;) {
      at += tensor.strides[axis];
      if (++index[axis] < tensor.shape[static_cast<int>(axis)]) break;
      at -= tensor.strides[axis] * index[axis];
      index[axis] = 0;
    }
  }
}

bool IsDense(const TorchTensor& tensor) {
  int64_t expected = 1;
  for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
    if (tensor.shape[axis] != 1 && tensor.strides[static_cast<size_t>(axis)] != expected)
      return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

// Finds each tensor's bytes and makes those dense that are not.
Result<TorchTensors> PlaceTensors(const std::vector<TorchTensor>& tensors,
                                  const StorageBytes& storages, uint64_t max_gathered_bytes) {
  TorchTensors placed;
  uint64_t gathered_bytes = 0;
  for (const TorchTensor& tensor : tensors) {
    const TorchStorage& storage = tensor.storage;
    const auto found = storages.find(storage.key);
    if (found == storages.end())
      return InvalidArgument(fmt::format("{}: the file has no storage {}", Printable(tensor.name),
                                         Printable(storage.key)));
    const size_t element = SizeOf(storage.dtype);
    if (found->second.size() % element != 0 ||
        static_cast<int64_t>(found->second.size() / element) != storage.num_elements)
      return InvalidArgument(
          fmt::format("{}: storage {} of {} {} elements takes other than the "
                      "{} bytes that it has",
                      Printable(tensor.name), Printable(storage.key), storage.num_elements,
                      DTypeName(storage.dtype), found->second.size()));
    ASSIGN_OR_RETURN(const uint64_t num_bytes, ByteSize(storage.dtype, tensor.shape));
    StoredTensor stored{tensor.name, storage.dtype, tensor.shape, {}};
    if (num_bytes > 0 && IsDense(tensor)) {
      stored.data = found->second.subspan(static_cast<size_t>(tensor.offset) * element, num_bytes);
    } else if (num_bytes > 0) {
      gathered_bytes += num_bytes;
      if (gathered_bytes > max_gathered_bytes)
        return Unimplemented(
            fmt::format("{}: views of the same storages add up to more bytes than the file has",
                        Printable(tensor.name)));
      auto& copy =
          placed.gathered.emplace_back(std::make_unique_for_overwrite<std::byte[]>(num_bytes));
      Gather(tensor, found->second.data(), copy.get());
      stored.data = {copy.get(), num_bytes};
    }
    placed.tensors.push_back(std::move(stored));
  }
  return placed;
}

// FOLDER/data.pkl, of which there must be one.
Result<ZipEntry> FindPickle(const std::vector<ZipEntry>& entries) {
  const ZipEntry* pickled = nullptr;
  for (const ZipEntry& entry : entries) {
    const size_t slash = entry.name.find('/');
    if (slash == std::string_view::npos || entry.name.substr(slash) != "/data.pkl") continue;
    if (pickled != nullptr)
      return InvalidArgument(fmt::format("two state dicts, {} and {}", Printable(pickled->name),
                                         Printable(entry.name)));
    pickled = &entry;
  }
  if (pickled == nullptr)
    return InvalidArgument("a zip file without FOLDER/data.pkl; torch.save did not write it");
  return *pickled;
}

Result<TorchTensors> ParseZipForm(Bytes bytes) {
  ASSIGN_OR_RETURN(const std::vector<ZipEntry> entries, ParseZip(bytes));
  ASSIGN_OR_RETURN(const ZipEntry pickled, FindPickle(entries));
  const std::string_view folder = pickled.name.substr(0, pickled.name.find('/') + 1);
  StorageBytes storages;
  for (const ZipEntry& entry : entries) {
    if (!entry.name.starts_with(folder)) continue;
    const std::string_view name = entry.name.substr(folder.size());
    if (name == "constants.pkl")
      return Unimplemented("is a TorchScript program (torch.jit.save), which is not read");
    if (name == "byteorder" && AsText(entry.data) != "little")
      return Unimplemented(
          fmt::format("byteorder: got {}, 'little' is needed", Printable(AsText(entry.data))));
    if (name.starts_with("data/")) storages.emplace(name.substr(5), entry.data);
  }
  Result<Pickle> pickle = ReadPickle(pickled.data);
  if (!pickle.ok()) return pickle.status().WithPrefix(Printable(pickled.name));
  ASSIGN_OR_RETURN(const std::vector<TorchTensor> tensors, ReadStateDict(*pickle));
  return PlaceTensors(tensors, storages, bytes.size());
}

// Takes one pickle off `rest`.
Result<Pickle> TakePickle(Bytes& rest) {
  ASSIGN_OR_RETURN(Pickle pickle, ReadPickle(rest));
  rest = rest.subspan(pickle.num_bytes);
  return pickle;
}

// What precedes the state dict: two numbers and a dict of the machine that wrote the file.
Status TakeLegacyHeader(Bytes& rest) {
  ASSIGN_OR_RETURN(const Pickle magic, TakePickle(rest));
  const PickleValue& number = magic[magic.root];
  if (number.kind != Kind::kHugeInt || number.text != kLegacyMagic)
    return InvalidArgument("neither a zip file nor the magic number of torch.save");
  ASSIGN_OR_RETURN(const Pickle protocol, TakePickle(rest));
  const PickleValue& version = protocol[protocol.root];
  if (version.kind != Kind::kInt || version.number != kLegacyProtocol)
    return Unimplemented(fmt::format("protocol of torch.save: got {}, {} is needed",
                                     ShowPickleValue(version), kLegacyProtocol));
  ASSIGN_OR_RETURN(const Pickle machine, TakePickle(rest));
  const PickleValue& facts = machine[machine.root];
  if (facts.kind != Kind::kDict) return InvalidArgument("a dict of system facts is needed");
  for (size_t i = 0; i < facts.items.size(); i += 2) {
    const PickleValue& value = machine[facts.items[i + 1]];
    if (machine[facts.items[i]].text == "little_endian" &&
        (value.kind != Kind::kBool || value.number == 0))
      return Unimplemented("was written by a big-endian machine, which is not read");
  }
  return Status::Ok();
}

// Storages follow each other in the order of the keys: a number of elements, then bytes.
Result<StorageBytes> TakeLegacyStorages(Bytes& rest, const std::vector<TorchTensor>& tensors) {
  ASSIGN_OR_RETURN(const Pickle pickle, TakePickle(rest));
  const PickleValue& keys = pickle[pickle.root];
  if (keys.kind != Kind::kList) return InvalidArgument("a list of storage keys is needed");
  std::unordered_map<std::string_view, DType> dtypes;  // the bytes do not say it
  for (const TorchTensor& tensor : tensors)
    dtypes.emplace(tensor.storage.key, tensor.storage.dtype);
  // Keys of the list lie in the file, as those of the tensors do.
  StorageBytes storages;
  for (const PickleIdx idx : keys.items) {
    const std::string_view key = pickle[idx].text;
    const auto dtype = dtypes.find(key);
    if (pickle[idx].kind != Kind::kText || dtype == dtypes.end())
      return InvalidArgument(
          fmt::format("storage {} belongs to no tensor", ShowPickleValue(pickle[idx])));
    uint64_t num_elements = 0;
    if (rest.size() < sizeof(num_elements)) return DataLoss("truncated: no size of a storage");
    std::memcpy(&num_elements, rest.data(), sizeof(num_elements));
    rest = rest.subspan(sizeof(num_elements));
    if (num_elements > rest.size() / SizeOf(dtype->second))
      return DataLoss(fmt::format("truncated: storage {} of {} elements, {} bytes are left",
                                  Printable(key), num_elements, rest.size()));
    const size_t num_bytes = num_elements * SizeOf(dtype->second);
    if (!storages.emplace(key, rest.first(num_bytes)).second)
      return InvalidArgument(fmt::format("storage {} comes twice", Printable(key)));
    rest = rest.subspan(num_bytes);
  }
  if (!rest.empty())
    return InvalidArgument(fmt::format("{} bytes after the last storage", rest.size()));
  return storages;
}

Result<TorchTensors> ParseLegacyForm(Bytes bytes) {
  if (AsText(bytes).starts_with(kLfsPointer))
    return InvalidArgument("is a Git LFS pointer, not the weights; fetch them with `git lfs pull`");
  Bytes rest = bytes;
  RETURN_IF_ERROR(TakeLegacyHeader(rest));
  ASSIGN_OR_RETURN(const Pickle pickle, TakePickle(rest));
  ASSIGN_OR_RETURN(const std::vector<TorchTensor> tensors, ReadStateDict(pickle));
  ASSIGN_OR_RETURN(const StorageBytes storages, TakeLegacyStorages(rest, tensors));
  return PlaceTensors(tensors, storages, bytes.size());
}

}  // namespace

Result<TorchTensors> ParseTorchFile(Bytes bytes, std::string_view file) {
  Result<TorchTensors> tensors = LooksLikeZip(bytes) ? ParseZipForm(bytes) : ParseLegacyForm(bytes);
  if (!tensors.ok()) return WithRemedy(tensors.status(), file);
  return tensors;
}

}  // namespace inflight::artifact
