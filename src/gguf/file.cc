// SPDX-License-Identifier: Apache-2.0
#include "gguf/file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/status_macros.h"

namespace inflight::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read without swapping");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kVersions[] = {2, 3};
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kAlignmentUnit = 8;  // general.alignment is a multiple of it
constexpr size_t kMaxKeyBytes = 65535;
constexpr size_t kMaxNameBytes = 1024;
constexpr int kMaxDepth = 4;  // of arrays in arrays
// The least that one of them takes: of an entry key, type and value; of a tensor name, dimensions,
// type and offset. By these a count is checked before anything is made of it.
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;

uint64_t AlignUp(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

std::string Printable(std::string_view text) { return Describe(Value(text)); }

// Takes values off the front of a file.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  Status Truncated(std::string_view what) const {
    return DataLoss(fmt::format("truncated: {} at byte {} goes beyond the file's {} bytes", what,
                                position_, bytes_.size()));
  }

  template <typename T>
  Result<T> Number(std::string_view what) {
    T value{};
    if (left() < sizeof(T)) return Truncated(what);
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> Bytes(uint64_t num_bytes, std::string_view what) {
    if (num_bytes > left()) return Truncated(what);
    const auto part = bytes_.subspan(position_, num_bytes);
    position_ += num_bytes;
    return part;
  }

  Result<std::string_view> Text(std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t num_bytes, Number<uint64_t>(what));
    ASSIGN_OR_RETURN(const auto bytes, Bytes(num_bytes, what));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  // A count of things that take at least `min_bytes` each.
  Result<uint64_t> Count(uint64_t min_bytes, std::string_view what) {
    ASSIGN_OR_RETURN(const uint64_t count, Number<uint64_t>(what));
    if (count > left() / min_bytes)
      return DataLoss(fmt::format("{}: got {}, more than the {} bytes behind it can hold", what,
                                  count, left()));
    return count;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

Result<ValueType> ReadType(Reader& reader, const std::string& what) {
  ASSIGN_OR_RETURN(const uint32_t number, reader.Number<uint32_t>(what));
  if (number > static_cast<uint32_t>(ValueType::kF64))
    return InvalidArgument(fmt::format("{}: got value type {}, 0 to {} are known", what, number,
                                       static_cast<uint32_t>(ValueType::kF64)));
  return static_cast<ValueType>(number);
}

Result<Array> ReadArray(Reader& reader, const std::string& what, int depth);

// Walks over elements that have no fixed size.
Status SkipElements(Reader& reader, const Array& array, const std::string& what, int depth) {
  for (uint64_t i = 0; i < array.size; ++i) {
    if (array.type == ValueType::kString)
      RETURN_IF_ERROR(reader.Text(what).status());
    else
      RETURN_IF_ERROR(ReadArray(reader, what, depth + 1).status());
  }
  return Status::Ok();
}

Result<Array> ReadArray(Reader& reader, const std::string& what, int depth) {
  if (depth > kMaxDepth)
    return InvalidArgument(fmt::format("{}: arrays nested deeper than {} levels", what, kMaxDepth));
  Array array;
  ASSIGN_OR_RETURN(array.type, ReadType(reader, what));
  const size_t element = SizeOf(array.type);
  constexpr uint64_t kMinElementBytes = 8;  // of texts and arrays, which begin with a length
  ASSIGN_OR_RETURN(array.size, reader.Count(element == 0 ? kMinElementBytes : element, what));
  if (element != 0) {
    ASSIGN_OR_RETURN(array.bytes, reader.Bytes(array.size * element, what));
    return array;
  }
  Reader elements = reader;
  RETURN_IF_ERROR(SkipElements(elements, array, what, depth));
  ASSIGN_OR_RETURN(array.bytes, reader.Bytes(elements.position() - reader.position(), what));
  return array;
}

template <typename Wide, typename T>
Result<Value> ReadNumber(Reader& reader, const std::string& what) {
  ASSIGN_OR_RETURN(const T value, reader.Number<T>(what));
  return Value(static_cast<Wide>(value));
}

Result<Value> ReadValue(Reader& reader, const std::string& what) {
  ASSIGN_OR_RETURN(const ValueType type, ReadType(reader, what));
  switch (type) {
    case ValueType::kU8:
      return ReadNumber<int64_t, uint8_t>(reader, what);
    case ValueType::kI8:
      return ReadNumber<int64_t, int8_t>(reader, what);
    case ValueType::kU16:
      return ReadNumber<int64_t, uint16_t>(reader, what);
    case ValueType::kI16:
      return ReadNumber<int64_t, int16_t>(reader, what);
    case ValueType::kU32:
      return ReadNumber<int64_t, uint32_t>(reader, what);
    case ValueType::kI32:
      return ReadNumber<int64_t, int32_t>(reader, what);
    case ValueType::kF32:
      return ReadNumber<double, float>(reader, what);
    case ValueType::kU64:
      return ReadNumber<uint64_t, uint64_t>(reader, what);
    case ValueType::kI64:
      return ReadNumber<int64_t, int64_t>(reader, what);
    case ValueType::kF64:
      return ReadNumber<double, double>(reader, what);
    case ValueType::kBool: {
      ASSIGN_OR_RETURN(const uint8_t flag, reader.Number<uint8_t>(what));
      if (flag > 1) return InvalidArgument(fmt::format("{}: got {}, 0 or 1 is needed", what, flag));
      return Value(flag == 1);
    }
    case ValueType::kString: {
      ASSIGN_OR_RETURN(const std::string_view text, reader.Text(what));
      return Value(text);
    }
    case ValueType::kArray: {
      ASSIGN_OR_RETURN(const Array array, ReadArray(reader, what, 1));
      return Value(array);
    }
  }
  return InvalidArgument(what + ": unknown value type");
}

struct Counts {
  uint64_t tensors = 0;
  uint64_t entries = 0;
};

Result<Counts> ReadHeader(Reader& reader) {
  ASSIGN_OR_RETURN(const auto magic, reader.Bytes(kMagic.size(), "the magic"));
  if (!HasMagic(magic))
    return InvalidArgument(
        fmt::format("no GGUF file: begins with {}, 'GGUF' is needed",
                    Printable({reinterpret_cast<const char*>(magic.data()), magic.size()})));
  ASSIGN_OR_RETURN(const uint32_t version, reader.Number<uint32_t>("version"));
  if (const uint32_t swapped = __builtin_bswap32(version);
      std::ranges::find(kVersions, swapped) != std::end(kVersions))
    return Unimplemented("version: is big-endian; convert the model for little-endian machines");
  if (std::ranges::find(kVersions, version) == std::end(kVersions))
    return Unimplemented(
        fmt::format("version: got {}, {} are supported", version, fmt::join(kVersions, " and ")));
  Counts counts;
  ASSIGN_OR_RETURN(counts.tensors, reader.Count(kMinTensorBytes, "tensor_count"));
  ASSIGN_OR_RETURN(counts.entries, reader.Count(kMinEntryBytes, "metadata_kv_count"));
  return counts;
}

Status ReadEntries(Reader& reader, uint64_t count, Metadata& metadata) {
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const std::string_view key, reader.Text("a key of the metadata"));
    if (key.empty() || key.size() > kMaxKeyBytes)
      return InvalidArgument(
          fmt::format("a key of {} bytes, 1 to {} are allowed", key.size(), kMaxKeyBytes));
    const std::string what = Printable(key);
    ASSIGN_OR_RETURN(const Value value, ReadValue(reader, what));
    if (!metadata.Add(key, value)) return InvalidArgument(what + ": comes twice");
  }
  return Status::Ok();
}

struct TensorEntry {
  Tensor tensor;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

// Bytes of whole blocks along each row.
Result<uint64_t> BytesOf(const Tensor& tensor, const std::string& what) {
  const int64_t width = tensor.shape.back();
  if (width % tensor.type->num_elements != 0)
    return InvalidArgument(fmt::format("{}: rows of {} elements, blocks of {} have {}", what, width,
                                       tensor.type->name, tensor.type->num_elements));
  uint64_t num_bytes = static_cast<uint64_t>(tensor.type->num_bytes);
  bool overflows = __builtin_mul_overflow(
      num_bytes, static_cast<uint64_t>(width / tensor.type->num_elements), &num_bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    overflows |=
        __builtin_mul_overflow(num_bytes, static_cast<uint64_t>(tensor.shape[i]), &num_bytes);
  if (overflows)
    return InvalidArgument(
        fmt::format("{}: shape [{}] is too large", what, fmt::join(tensor.shape, ", ")));
  return num_bytes;
}

Result<TensorEntry> ReadTensor(Reader& reader) {
  TensorEntry entry;
  ASSIGN_OR_RETURN(entry.tensor.name, reader.Text("a tensor's name"));
  if (entry.tensor.name.empty() || entry.tensor.name.size() > kMaxNameBytes)
    return InvalidArgument(fmt::format("a tensor's name of {} bytes, 1 to {} are allowed",
                                       entry.tensor.name.size(), kMaxNameBytes));
  const std::string what = Printable(entry.tensor.name);
  ASSIGN_OR_RETURN(const uint32_t num_dims, reader.Number<uint32_t>(what));
  if (num_dims == 0 || num_dims > kMaxDims)
    return InvalidArgument(
        fmt::format("{}: {} dimensions, 1 to {} are allowed", what, num_dims, kMaxDims));
  for (uint32_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(const uint64_t dim, reader.Number<uint64_t>(what));
    if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX))
      return InvalidArgument(
          fmt::format("{}: dimension {}: got {}, 1 to {} are allowed", what, i, dim, INT64_MAX));
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  ASSIGN_OR_RETURN(const uint32_t type, reader.Number<uint32_t>(what));
  entry.tensor.type = FindBlockType(type);
  if (entry.tensor.type == nullptr)
    return InvalidArgument(fmt::format("{}: unknown block type {}", what, type));
  ASSIGN_OR_RETURN(entry.offset, reader.Number<uint64_t>(what));
  ASSIGN_OR_RETURN(entry.num_bytes, BytesOf(entry.tensor, what));
  return entry;
}

Result<uint64_t> AlignmentOf(const Metadata& metadata) {
  constexpr int64_t kMax = int64_t{1} << 16;
  ASSIGN_OR_RETURN(const auto named, metadata.Int("general.alignment", 1, kMax));
  const auto alignment = static_cast<uint64_t>(named.value_or(kDefaultAlignment));
  if (alignment % kAlignmentUnit != 0)
    return InvalidArgument(fmt::format("{}: general.alignment: got {}, a multiple of {} is needed",
                                       metadata.where(), alignment, kAlignmentUnit));
  return alignment;
}

// Gives each tensor its part of the data.
Status Place(std::vector<TensorEntry>& entries, uint64_t alignment,
             std::span<const std::byte> data) {
  for (TensorEntry& entry : entries) {
    const std::string what = Printable(entry.tensor.name);
    if (entry.offset % alignment != 0)
      return InvalidArgument(fmt::format("{}: offset: got {}, a multiple of {} is needed", what,
                                         entry.offset, alignment));
    if (entry.offset > data.size() || entry.num_bytes > data.size() - entry.offset)
      return DataLoss(
          fmt::format("{}: truncated: {} bytes from byte {} of the data on, the file holds {}",
                      what, entry.num_bytes, entry.offset, data.size()));
    entry.tensor.data = data.subspan(entry.offset, entry.num_bytes);
  }
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : entries) by_offset.push_back(&entry);
  std::ranges::sort(by_offset, {}, &TensorEntry::offset);
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorEntry& before = *by_offset[i - 1];
    if (before.offset + before.num_bytes > by_offset[i]->offset)
      return InvalidArgument(fmt::format(
          "{}: offset {} lies in {}, which ends at {}", Printable(by_offset[i]->tensor.name),
          by_offset[i]->offset, Printable(before.tensor.name), before.offset + before.num_bytes));
  }
  return Status::Ok();
}

Status ReadMetadata(Reader& reader, std::span<const std::byte> bytes, Counts& counts, File& file) {
  ASSIGN_OR_RETURN(counts, ReadHeader(reader));
  const size_t begin = reader.position();
  RETURN_IF_ERROR(ReadEntries(reader, counts.entries, file.metadata));
  file.entries = bytes.subspan(begin, reader.position() - begin);
  return Status::Ok();
}

Status ReadTensors(Reader& reader, std::span<const std::byte> bytes, uint64_t count, File& file) {
  std::vector<TensorEntry> tensors;
  std::unordered_set<std::string_view> names;
  for (uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(TensorEntry entry, ReadTensor(reader));
    if (!names.insert(entry.tensor.name).second)
      return InvalidArgument(Printable(entry.tensor.name) + ": comes twice");
    tensors.push_back(std::move(entry));
  }
  const auto data_begin =
      std::min<uint64_t>(AlignUp(reader.position(), file.alignment), bytes.size());
  RETURN_IF_ERROR(Place(tensors, file.alignment, bytes.subspan(data_begin)));
  for (TensorEntry& entry : tensors) file.tensors.push_back(std::move(entry.tensor));
  return Status::Ok();
}

}  // namespace

std::vector<std::filesystem::path> PartsOf(const std::filesystem::path& path) {
  constexpr std::string_view kFirst = "-00001-of-";
  constexpr size_t kDigits = 5;
  const std::string name = path.filename().string();
  const size_t end_size = kFirst.size() + kDigits + kExtension.size();
  if (name.size() < end_size || !name.ends_with(kExtension)) return {path};
  const std::string stem = name.substr(0, name.size() - end_size);
  const std::string digits = name.substr(stem.size() + kFirst.size(), kDigits);
  if (name.substr(stem.size(), kFirst.size()) != kFirst ||
      digits.find_first_not_of("0123456789") != std::string::npos || digits == "00000")
    return {path};
  std::vector<std::filesystem::path> parts;
  for (int i = 1; i <= std::stoi(digits); ++i)
    parts.push_back(path.parent_path() /
                    fmt::format("{}-{:05}-of-{}{}", stem, i, digits, kExtension));
  return parts;
}

bool IsGgufFile(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && path.extension() == kExtension;
}

std::filesystem::path TokenizerFileOf(const std::filesystem::path& path) {
  if (IsGgufFile(path)) return path;
  return FileExists(path / kTokenizerFile) ? path / kTokenizerFile : std::filesystem::path();
}

bool HasMagic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<File> Parse(std::span<const std::byte> bytes, const std::string& where) {
  Reader reader(bytes);
  File file{.metadata = Metadata(where), .tensors = {}, .entries = {}};
  Counts counts;
  if (const Status read = ReadMetadata(reader, bytes, counts, file); !read.ok())
    return read.WithPrefix(where);
  ASSIGN_OR_RETURN(file.alignment, AlignmentOf(file.metadata));
  if (const Status read = ReadTensors(reader, bytes, counts.tensors, file); !read.ok())
    return read.WithPrefix(where);
  return file;
}

std::string WithoutTensors(const File& file) {
  const auto append = [](std::string& out, auto number) {
    out.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  std::string out(kMagic);
  append(out, kVersions[1]);
  append(out, uint64_t{0});
  append(out, uint64_t{file.metadata.entries().size()});
  out.append(reinterpret_cast<const char*>(file.entries.data()), file.entries.size());
  out.resize(AlignUp(out.size(), file.alignment), '\0');
  return out;
}

}  // namespace inflight::gguf
