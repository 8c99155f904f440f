// SPDX-License-Identifier: Apache-2.0
#include "artifact/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "artifact/json_file.h"
#include "artifact/sizes.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::artifact {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read without swapping");

using nlohmann::json;

constexpr size_t kLengthBytes = sizeof(uint64_t);
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the bound of the reference implementation
constexpr int kMaxHeaderDepth = 8;                 // 3 are used; printing a value recurses
constexpr size_t kHeaderAlignment = 64;            // of what we write, so that data is aligned

struct NamedDType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<NamedDType, 11> kDTypes = {{{"F32", DType::kF32},
                                                 {"F16", DType::kF16},
                                                 {"BF16", DType::kBF16},
                                                 {"F64", DType::kF64},
                                                 {"I8", DType::kI8},
                                                 {"U8", DType::kU8},
                                                 {"I16", DType::kI16},
                                                 {"I32", DType::kI32},
                                                 {"I64", DType::kI64},
                                                 {"BOOL", DType::kBool},
                                                 {"F8_E4M3", DType::kF8E4M3}}};

std::string_view SafetensorsName(DType dtype) {
  for (const NamedDType& known : kDTypes)
    if (known.dtype == dtype) return known.name;
  CHECK(false);
}

// Parses a header, refusing keys that come twice in one object: readers would differ on which one
// counts.
Result<json> ParseHeader(std::string_view text, std::string_view file) {
  std::vector<std::set<std::string>> open_objects;
  std::string repeated;
  bool is_too_deep = false;
  const json::parser_callback_t callback = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && repeated.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) repeated = key;
    }
    is_too_deep |= depth > kMaxHeaderDepth;
    return depth <= kMaxHeaderDepth;
  };
  try {
    json header = json::parse(text, callback);
    if (is_too_deep)
      return InvalidArgument(
          fmt::format("{}: header: nested deeper than {} levels", file, kMaxHeaderDepth));
    if (!repeated.empty())
      return InvalidArgument(fmt::format("{}: header: '{}' comes twice", file, repeated));
    if (!header.is_object())
      return InvalidArgument(fmt::format("{}: header: not a JSON object", file));
    return header;
  } catch (const json::exception& error) {
    return InvalidArgument(fmt::format("{}: header: not valid JSON: {}", file, error.what()));
  }
}

// What a field of an entry is, and what it must be: "two whole numbers are needed".
Status WrongField(const json& entry, std::string_view name, std::string_view needed) {
  const auto found = entry.find(name);
  return InvalidArgument(found == entry.end()
                             ? fmt::format("{}: is missing, {}", name, needed)
                             : fmt::format("{}: got {}, {}", name, Abbreviate(*found), needed));
}

Result<DType> ReadDType(const json& entry) {
  const auto found = entry.find("dtype");
  std::string names;
  for (const NamedDType& known : kDTypes) {
    if (found != entry.end() && *found == known.name) return known.dtype;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return WrongField(entry, "dtype", fmt::format("one of {} is needed", names));
}

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
};

Result<Extent> ParseExtent(const json& entry) {
  const auto found = entry.find("data_offsets");
  if (found == entry.end() || !found->is_array() || found->size() != 2 ||
      !(*found)[0].is_number_unsigned() || !(*found)[1].is_number_unsigned())
    return WrongField(entry, "data_offsets", "two whole numbers are needed");
  return Extent{(*found)[0].get<uint64_t>(), (*found)[1].get<uint64_t>()};
}

Result<Shape> ParseShape(const json& entry) {
  const auto found = entry.find("shape");
  if (found == entry.end() || !found->is_array())
    return WrongField(entry, "shape", "a list of whole numbers is needed");
  std::vector<int64_t> dims;
  for (const json& dim : *found) {
    if (!dim.is_number_unsigned() || dim.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
      return WrongField(entry, "shape", "whole numbers are needed");
    dims.push_back(dim.get<int64_t>());
  }
  return MakeShape(dims);
}

Result<StoredTensor> ParseEntry(const std::string& name, const json& entry,
                                std::span<const std::byte> data) {
  if (!entry.is_object()) return InvalidArgument("an object is needed");
  ASSIGN_OR_RETURN(const DType dtype, ReadDType(entry));
  ASSIGN_OR_RETURN(const Shape shape, ParseShape(entry));
  ASSIGN_OR_RETURN(const Extent extent, ParseExtent(entry));
  ASSIGN_OR_RETURN(const uint64_t num_bytes, ByteSize(dtype, shape));
  if (extent.begin > extent.end || extent.end - extent.begin != num_bytes)
    return InvalidArgument(fmt::format("data_offsets: got [{}, {}], {} {} takes {} bytes",
                                       extent.begin, extent.end, SafetensorsName(dtype),
                                       shape.ToString(), num_bytes));
  if (extent.end > data.size())
    return Status(StatusCode::kDataLoss,
                  fmt::format("truncated: ends at byte {} of the data, the file holds {}",
                              extent.end, data.size()));
  return StoredTensor{name, dtype, shape, data.subspan(extent.begin, num_bytes)};
}

// Tensors must tile the data: sorted by address each begins where the one before ends.
Status CheckTiling(std::vector<StoredTensor>& tensors, std::span<const std::byte> data,
                   std::string_view file) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data.data(), a.data.size()) < std::pair(b.data.data(), b.data.size());
  });
  const std::byte* expected = data.data();
  for (const StoredTensor& tensor : tensors) {
    if (tensor.data.data() != expected)
      return InvalidArgument(
          fmt::format("{}: {}: begins at byte {} of the data, {} was expected (tensors {})", file,
                      tensor.name, tensor.data.data() - data.data(), expected - data.data(),
                      tensor.data.data() < expected ? "overlap" : "leave a gap"));
    expected += tensor.data.size();
  }
  const auto described = static_cast<size_t>(expected - data.data());
  if (described != data.size())
    return InvalidArgument(fmt::format("{}: holds {} bytes of data, its header describes {}", file,
                                       data.size(), described));
  return Status::Ok();
}

}  // namespace

Result<std::vector<StoredTensor>> ParseSafetensors(std::span<const std::byte> bytes,
                                                   std::string_view file) {
  uint64_t header_bytes = 0;
  if (bytes.size() < kLengthBytes)
    return Status(
        StatusCode::kDataLoss,
        fmt::format("{}: truncated: {} bytes are no safetensors file", file, bytes.size()));
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes)
    return InvalidArgument(fmt::format("{}: header of {} bytes, at most {} are allowed", file,
                                       header_bytes, kMaxHeaderBytes));
  bytes = bytes.subspan(kLengthBytes);
  if (header_bytes > bytes.size())
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: truncated: header of {} bytes, the file holds {}", file,
                              header_bytes, bytes.size()));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), header_bytes);
  const std::span<const std::byte> data = bytes.subspan(header_bytes);
  ASSIGN_OR_RETURN(const json header, ParseHeader(text, file));

  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Result<StoredTensor> tensor = ParseEntry(name, entry, data);
    if (!tensor.ok()) return tensor.status().WithPrefix(fmt::format("{}: {}", file, name));
    tensors.push_back(*std::move(tensor));
  }
  RETURN_IF_ERROR(CheckTiling(tensors, data, file));
  return tensors;
}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& path,
                                                    const std::vector<TensorSpec>& tensors) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    std::vector<int64_t> dims;
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) dims.push_back(tensor.shape[axis]);
    ASSIGN_OR_RETURN(const uint64_t num_bytes, ByteSize(tensor.dtype, tensor.shape));
    header[tensor.name] = {{"dtype", SafetensorsName(tensor.dtype)},
                           {"shape", dims},
                           {"data_offsets", {offset, offset + num_bytes}}};
    offset += num_bytes;
  }
  std::string text = header.dump();
  text.resize(
      (text.size() + kLengthBytes + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment -
          kLengthBytes,
      ' ');
  const uint64_t header_bytes = text.size();

  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  RETURN_IF_ERROR(file.WriteAt(0, std::as_bytes(std::span(&header_bytes, 1))));
  RETURN_IF_ERROR(file.WriteAt(kLengthBytes, std::as_bytes(std::span(text))));
  const uint64_t data_offset = kLengthBytes + header_bytes;
  return SafetensorsWriter(std::move(file), data_offset, data_offset + offset);
}

Status SafetensorsWriter::Append(std::span<const std::byte> data) {
  CHECK_LE(data.size(), end_ - position_);
  RETURN_IF_ERROR(file_.WriteAt(position_, data));
  position_ += data.size();
  return Status::Ok();
}

Status SafetensorsWriter::Finish() {
  CHECK_EQ(position_, end_);
  return file_.Commit(end_);
}

}  // namespace inflight::artifact
